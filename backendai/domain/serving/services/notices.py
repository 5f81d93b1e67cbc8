"""Tells owners what happens to an endpoint as a whole: one notification for each event, none for each replica. It is
shown under the bell and sent by mail, as chosen for sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.notices import NoticeKind, mail_wanted, sends_mail
from backendai.domain.compute.services.notices.mails import MOST_AT_ONCE, TRIED_FOR, mail_each
from backendai.domain.serving.models import Endpoint, EndpointNotice

KEPT_FOR, AGAIN = timedelta(days=30), timedelta(days=1)
Kind = EndpointNotice.Kind
KIND_OF = {
    Kind.UNAVAILABLE: NoticeKind.FAILED,
    Kind.BACKING_OFF: NoticeKind.FAILED,
    Kind.ROLLED_BACK: NoticeKind.FAILED,
    Kind.UNUSED: NoticeKind.IDLE,
}
Writer = Callable[[EndpointNotice], tuple[str, str]]  # the subject and the text of a mail


def tell_owner(endpoint: Endpoint, kind: EndpointNotice.Kind, message: str, *, now: datetime) -> None:
    """Write the notification; one of the last day stays as it is: what comes and goes is one event."""
    about = {"owner_id": endpoint.owner_id, "message": message, "created_at": now}
    about |= dict.fromkeys(("mailed_at", "seen_at", "cleared_at"))
    made, is_new = EndpointNotice.objects.get_or_create(endpoint=endpoint, kind=kind, defaults=about)
    if not is_new:
        EndpointNotice.objects.filter(pk=made.pk, created_at__lte=now - AGAIN).update(**about)


def notices_of(user: User) -> QuerySet[EndpointNotice]:
    """Return the notifications of one's endpoints that are not put away."""
    lately = Q(created_at__gt=timezone.now() - KEPT_FOR)
    return EndpointNotice.objects.filter(lately, owner=user, cleared_at=None)


def told_by(kinds: Collection[str]) -> Q:
    """Return the condition of notifications that belong to these kinds of news."""
    return Q(kind__in=[kind for kind, like in KIND_OF.items() if like in kinds])


def has_endpoint_mails(now: datetime) -> bool:
    """Return whether mails about endpoints are due; two queries, none if the site sends no mail."""
    return _due(now).exists() if sends_mail() else False


def send_endpoint_mails(clock: Callable[[], datetime], write: Writer) -> int:
    """Send due mails with the texts of ``write``; returns how many. Raises as ``mail_each``."""
    return mail_each(_due(clock()).select_related("endpoint", "owner").order_by("pk")[:MOST_AT_ONCE], clock, write)


def _due(now: datetime) -> QuerySet[EndpointNotice]:
    asked = Q(pk__in=[])
    wanted = mail_wanted()
    for kind, like in KIND_OF.items():
        asked |= Q(kind=kind, owner__in=wanted.get(like, ()))
    return EndpointNotice.objects.filter(asked, mailed_at=None, created_at__gt=now - TRIED_FOR, owner__is_active=True)


def see_endpoints(user: User, *, now: datetime) -> None:
    """Note that the user has seen them under the bell."""
    notices_of(user).filter(seen_at=None).update(seen_at=now)


def clear_endpoints(user: User, *, now: datetime) -> int:
    """Put them out of the user's sight; returns how many."""
    return notices_of(user).update(cleared_at=now, seen_at=now)
