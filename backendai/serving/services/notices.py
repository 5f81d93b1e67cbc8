"""Tells owners what happens to an endpoint as a whole: one notification for each event, none for each replica."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from backendai.accounts.models import User
from backendai.serving.models import Endpoint, EndpointNotice

KEPT_FOR, AGAIN = timedelta(days=30), timedelta(days=1)
Kind = EndpointNotice.Kind


def tell_owner(endpoint: Endpoint, kind: EndpointNotice.Kind, message: str, *, now: datetime) -> None:
    """Write the notification; one of the last day stays as it is: what comes and goes is one event."""
    about = {"owner_id": endpoint.owner_id, "message": message, "created_at": now, "seen_at": None, "cleared_at": None}
    made, is_new = EndpointNotice.objects.get_or_create(endpoint=endpoint, kind=kind, defaults=about)
    if not is_new:
        EndpointNotice.objects.filter(pk=made.pk, created_at__lte=now - AGAIN).update(**about)


def notices_of(user: User) -> QuerySet[EndpointNotice]:
    """Return the notifications of one's endpoints that are not put away."""
    lately = Q(created_at__gt=timezone.now() - KEPT_FOR)
    return EndpointNotice.objects.filter(lately, owner=user, cleared_at=None)


def see_endpoints(user: User, *, now: datetime) -> None:
    """Note that the user has seen them under the bell."""
    notices_of(user).filter(seen_at=None).update(seen_at=now)


def clear_endpoints(user: User, *, now: datetime) -> int:
    """Put them out of the user's sight; returns how many."""
    return notices_of(user).update(cleared_at=now, seen_at=now)
