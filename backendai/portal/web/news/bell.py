"""The list under the bell: notifications and background work, the newest first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.access_notices import ACCESS
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.notices import NoticeKind, choices_of, kinds_in
from backendai.domain.compute.models import SessionNotice
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.domain.compute.services.notices.unknown_notifications import undecided_by_agent
from backendai.domain.pipelines.presentation import RUNS
from backendai.domain.serving.services.notices import ENDPOINTS
from backendai.domain.storage.models import FolderGrant
from backendai.portal.web.pipelines.rows import rows_of

SOURCES = (SESSIONS, RUNS, ENDPOINTS, ACCESS)
_MOST_JOBS, _MOST_NOTICES, _MOST_RUNS = 50, 200, 50


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the bell.

    ``about``: what its template shows: a background job, an ended run, a notification of an endpoint or of given
    access, unknown kernels, or the notifications of a session, the newest first. ``warned``: a running session of which
    the newest notification is an idle warning.
    """

    at: datetime
    template: str
    about: Any
    is_unseen: bool
    warned: UUID | None = None


def lines_of(user: User) -> list[Line]:
    """Return the entries of the bell that the user has not dismissed, for superadmins also unknown kernels.

    Six queries, one more for runs and one for superadmins.
    """
    now, kinds = timezone.now(), kinds_in(choices_of(user), "bell")
    jobs = BackgroundJob.objects.in_bell_of(user)[:_MOST_JOBS]
    lines = [Line(job.created_at, "web/_job.html", job, job.seen_at is None and not job.is_running) for job in jobs]
    if unknown := undecided_by_agent(user):
        lines.append(Line(max(one.found_at for one in unknown), "web/_unknown_news.html", unknown, True))
    for row in rows_of(RUNS.shown(user, kinds, now=now).order_by("-ended_at")[:_MOST_RUNS]):
        lines.append(Line(row.run.ended_at or now, "web/pipelines/_news.html", row, row.run.seen_at is None))
    for one in ENDPOINTS.shown(user, kinds, now=now)[:_MOST_RUNS]:
        lines.append(Line(one.created_at, "web/endpoints/_news.html", one, one.seen_at is None))
    for one in ACCESS.shown(user, kinds, now=now)[:_MOST_NOTICES]:
        lines.append(Line(one.created_at, "web/_access_news.html", one, one.seen_at is None))
    of_session: defaultdict[UUID, list[SessionNotice]] = defaultdict(list)
    for one in SESSIONS.shown(user, kinds, now=now).order_by("-pk")[:_MOST_NOTICES]:
        of_session[one.session_id].append(one)
    lines += map(_session_line, of_session.values())
    return sorted(lines, key=lambda line: line.at, reverse=True)


def counts_of(user: User) -> dict[str, int]:
    """Return the numbers of running jobs, of unseen notifications, and of invitations to folders that wait for an
    answer. Seven queries, one more for superadmins."""
    over = Q(seen_at=None) & ~Q(status=BackgroundJob.Status.RUNNING)
    jobs = BackgroundJob.objects.in_bell_of(user).order_by()
    counts = jobs.aggregate(
        running=Count("pk", filter=Q(status=BackgroundJob.Status.RUNNING)), unseen=Count("pk", filter=over)
    )
    now, kinds = timezone.now(), kinds_in(choices_of(user), "bell")
    unseen = counts["unseen"] + sum(one.shown(user, kinds, now=now).filter(seen_at=None).count() for one in SOURCES)
    unseen += 1 if undecided_by_agent(user) else 0  # one line, and new until it is decided
    return counts | {"unseen": unseen, "invitations": FolderGrant.objects.pending_for(user).order_by().count()}


def _session_line(notices: list[SessionNotice]) -> Line:
    newest, is_unseen = notices[0], any(one.seen_at is None for one in notices)
    is_warned = newest.kind == NoticeKind.IDLE and newest.session.is_running
    return Line(newest.created_at, "web/_news.html", notices, is_unseen, newest.session_id if is_warned else None)
