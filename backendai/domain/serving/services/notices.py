"""Tells owners what happens to an endpoint as a whole: one notification for each event, none for each replica. It is
shown under the bell and sent by mail, as chosen for sessions."""

from __future__ import annotations

from datetime import datetime, timedelta

from backendai.domain.activity.notice_sources import NoticeSource
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.serving.models import Endpoint, EndpointNotice

AGAIN = timedelta(days=1)
Kind = EndpointNotice.Kind
_KINDS: dict[str, str] = {**dict.fromkeys(Kind, NoticeKind.FAILED), Kind.UNUSED: NoticeKind.IDLE}
ENDPOINTS = NoticeSource(EndpointNotice, _KINDS, related=("endpoint",))


def tell_owner(endpoint: Endpoint, kind: EndpointNotice.Kind, message: str, *, now: datetime) -> None:
    """Write the notification; one of the last day stays as it is: what comes and goes is one event."""
    about = {"owner_id": endpoint.owner_id, "message": message, "created_at": now}
    about |= dict.fromkeys(("mailed_at", "seen_at", "cleared_at"))
    made, is_new = EndpointNotice.objects.get_or_create(endpoint=endpoint, kind=kind, defaults=about)
    if not is_new:
        EndpointNotice.objects.filter(pk=made.pk, created_at__lte=now - AGAIN).update(**about)
