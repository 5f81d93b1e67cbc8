"""Tells owners of endpoints that hold accelerators for requests that do not come."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Coalesce, Greatest

from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots, amount_in_words, is_accelerator
from backendai.domain.serving.models import DesiredState, Endpoint, EndpointNotice, Replica, ScalingRecord, State
from backendai.domain.serving.services.notices import Kind, tell_owner

UNUSED_FOR, AGAIN = timedelta(days=3), timedelta(days=7)


def tell_of_unused(now: datetime) -> int:
    """Tell owners of endpoints that cannot sleep, hold accelerators and had no request for three days; each endpoint
    once a week. Returns 0, as this rule repairs nothing. Two queries, and those that tell."""
    endpoints = list(_without_requests(now))
    held: defaultdict[UUID, Slots] = defaultdict(Slots)
    for one in Replica.objects.filter(endpoint__in=endpoints, state=State.READY).select_related("revision"):
        held[one.endpoint_id] += Slots.parse(one.revision.slots) * one.revision.cluster_size
    for endpoint in endpoints:
        accelerators = [(name, amount) for name, amount in held[endpoint.pk].items() if is_accelerator(name)]
        if amounts := [amount_in_words(name, amount) for name, amount in accelerators]:
            message = Message(
                "No request has come for {days} days, and its replicas hold {amounts}. With a minimum of 0 it sleeps, "
                "and the next request starts it.",
                days=(now - max(endpoint.asked_at or endpoint.created_at, endpoint.created_at)).days,
                amounts=Message.joined(amounts, ", "),
            )
            tell_owner(endpoint, Kind.UNUSED, message, now=now)
    return 0


def _without_requests(now: datetime) -> QuerySet[Endpoint]:
    told = EndpointNotice.objects.filter(endpoint=OuterRef("pk"), kind=Kind.UNUSED, created_at__gt=now - AGAIN)
    ready = Replica.objects.filter(endpoint=OuterRef("pk"), state=State.READY)
    last = Greatest(Coalesce("asked_at", F("created_at")), "created_at")
    found: QuerySet[Endpoint] = Endpoint.objects.alias(last=last).filter(
        ~Exists(told), Exists(ready), wish=DesiredState.RUN, minimum__gte=1, last__lte=now - UNUSED_FOR
    )
    return found


KEPT_FOR = timedelta(days=90)
_MOST_AT_ONCE = 5_000


def delete_old_records(now: datetime) -> int:
    """Delete decisions of more than 90 days ago; returns how many."""
    oldest = ScalingRecord.objects.order_by("pk").values_list("pk", "updated_at")[:_MOST_AT_ONCE]
    old = [pk for pk, updated_at in oldest if updated_at < now - KEPT_FOR]
    return ScalingRecord.objects.filter(pk__in=old).delete()[0] if old else 0


def delete_ended_replicas(now: datetime) -> int:
    """Delete replicas that ended more than 90 days ago; returns how many. Their sessions stay."""
    old = Replica.objects.filter(state=State.ENDED, ended_at__lt=now - KEPT_FOR).order_by().values_list("pk", flat=True)
    ended = list(old[:_MOST_AT_ONCE])
    Replica.objects.filter(pk__in=ended).delete()
    return len(ended)
