"""The list under the bell: notifications and background work, the newest first."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Q
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.access_notices import access_notices_of
from backendai.domain.activity.models import AccessNotice, BackgroundJob
from backendai.domain.activity.notices import GIVEN, NoticeKind, choices_of, kinds_in
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.notices.unknown_notifications import UnknownOn, undecided_by_agent
from backendai.domain.pipelines.services.news import ended_runs, told_by
from backendai.domain.serving.models import EndpointNotice
from backendai.domain.serving.services import notices as endpoint_news
from backendai.domain.storage.models import FolderGrant
from backendai.portal.web.pipelines.rows import RunRow, rows_of

_MOST_JOBS, _MOST_NOTICES, _MOST_RUNS = 50, 200, 50


@dataclass(slots=True)
class Line:
    """One entry of the bell.

    It is a background job, an ended run, a notification of an endpoint or of given access, unknown kernels, or a
    session with its notifications, the newest first.
    """

    at: datetime
    job: BackgroundJob | None = None
    session: ComputeSession | None = None
    notices: list[SessionNotice] = field(default_factory=list)
    unknown: list[UnknownOn] = field(default_factory=list)
    run: RunRow | None = None
    endpoint: EndpointNotice | None = None
    access: AccessNotice | None = None

    @property
    def is_unseen(self) -> bool:
        """Whether the user has not seen a part of the entry."""
        if self.job is not None:
            return not self.job.is_running and self.job.seen_at is None
        if self.run is not None:
            return self.run.run.seen_at is None
        if self.endpoint is not None:
            return self.endpoint.seen_at is None
        if self.access is not None:
            return self.access.seen_at is None
        return bool(self.unknown) or any(notice.seen_at is None for notice in self.notices)

    @property
    def may_keep(self) -> bool:
        """Whether its newest notification is an idle warning of a session that still runs."""
        return self.session is not None and self.session.is_running and self.notices[0].kind == NoticeKind.IDLE


def lines_of(user: User) -> list[Line]:
    """Return the entries of the bell that the user has not dismissed, for superadmins also unknown kernels.

    Six queries, one more for runs and one for superadmins.
    """
    jobs = BackgroundJob.objects.in_bell_of(user)[:_MOST_JOBS]
    lines = [Line(job.created_at, job=job) for job in jobs]
    of_session: dict[object, Line] = {}
    kinds = kinds_in(choices_of(user), "bell")
    notices = SessionNotice.objects.in_bell_of(user).filter(kind__in=kinds)
    for notice in notices.select_related("session__image").order_by("-pk")[:_MOST_NOTICES]:
        line = of_session.setdefault(notice.session_id, Line(notice.created_at, session=notice.session))
        line.notices.append(notice)
    if unknown := undecided_by_agent(user):
        lines.append(Line(max(one.found_at for one in unknown), unknown=unknown))
    ended = ended_runs(user).filter(told_by(kinds)).order_by("-ended_at").defer("text")[:_MOST_RUNS]
    lines += [Line(row.run.ended_at, run=row) for row in rows_of(ended) if row.run.ended_at]
    told = endpoint_news.notices_of(user).filter(endpoint_news.told_by(kinds)).select_related("endpoint")[:_MOST_RUNS]
    lines += [Line(one.created_at, endpoint=one) for one in told]
    if GIVEN in kinds:
        given = access_notices_of(user, now=timezone.now())[:_MOST_NOTICES]
        lines += [Line(one.created_at, access=one) for one in given]
    return sorted([*lines, *of_session.values()], key=lambda line: line.at, reverse=True)


def counts_of(user: User) -> dict[str, int]:
    """Return the numbers of running jobs, of unseen notifications, and of invitations to folders that wait for an
    answer. Seven queries, one more for superadmins."""
    over = Q(seen_at=None) & ~Q(status=BackgroundJob.Status.RUNNING)
    jobs = BackgroundJob.objects.in_bell_of(user).order_by()
    counts = jobs.aggregate(
        running=Count("pk", filter=Q(status=BackgroundJob.Status.RUNNING)), unseen=Count("pk", filter=over)
    )
    kinds = kinds_in(choices_of(user), "bell")
    notices = SessionNotice.objects.in_bell_of(user).unseen().filter(kind__in=kinds)
    waiting = 1 if undecided_by_agent(user) else 0  # one line, and new until it is decided
    runs = ended_runs(user).filter(told_by(kinds), seen_at=None).order_by().count()
    told = endpoint_news.notices_of(user).filter(endpoint_news.told_by(kinds), seen_at=None)
    given = access_notices_of(user, now=timezone.now()).filter(seen_at=None).order_by().count() if GIVEN in kinds else 0
    unseen = counts["unseen"] + notices.order_by().count() + waiting + runs + told.order_by().count() + given
    return counts | {"unseen": unseen, "invitations": FolderGrant.objects.pending_for(user).order_by().count()}
