"""What the owner of a run is told, once, when it has ended: under the bell and by mail, as chosen for sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.notices import NoticeKind, mail_wanted, sends_mail
from backendai.domain.compute.services.notices.mails import MOST_AT_ONCE, TRIED_FOR, mail_each
from backendai.domain.pipelines.models import Run, Status

KEPT_FOR = timedelta(days=30)
KIND_OF = {Status.SUCCEEDED: NoticeKind.FINISHED, Status.FAILED: NoticeKind.FAILED}
Writer = Callable[[Run], tuple[str, str]]  # the subject and the text of a mail


def ended_runs(user: User) -> QuerySet[Run, Any]:
    """Return one's own runs that ended lately and that one has not put away; what one cancelled is no news."""
    since = timezone.now() - KEPT_FOR
    return Run.objects.filter(owner=user, ended_at__gt=since, cleared_at=None).exclude(status=Status.CANCELLED)


def told_by(kinds: Collection[str]) -> Q:
    """Return the condition of runs that these kinds of news are about."""
    return Q(status__in=[status for status, kind in KIND_OF.items() if kind in kinds])


def has_run_mails(now: datetime) -> bool:
    """Return whether mails about runs are due; two queries, none if the site sends no mail."""
    return _due(now).exists() if sends_mail() else False


def send_run_mails(clock: Callable[[], datetime], write: Writer) -> int:
    """Send due mails with the texts of ``write``; returns how many. Raises as ``mail_each``."""
    due = _due(clock()).select_related("owner").defer("text").order_by("ended_at", "pk")[:MOST_AT_ONCE]
    return mail_each(due, clock, write)


def _due(now: datetime) -> QuerySet[Run, Any]:
    asked = Q(pk__in=[])
    wanted = mail_wanted()
    for status, kind in KIND_OF.items():
        asked |= Q(status=status, owner__in=wanted.get(kind, ()))
    return Run.objects.filter(asked, mailed_at=None, ended_at__gt=now - TRIED_FOR, owner__is_active=True)


def see_runs(user: User, *, now: datetime) -> None:
    """Note that the user has seen under the bell which runs ended."""
    ended_runs(user).filter(seen_at=None).update(seen_at=now)


def clear_runs(user: User, *, now: datetime) -> int:
    """Put ended runs out of the user's sight under the bell; returns how many."""
    return ended_runs(user).update(cleared_at=now, seen_at=now)
