"""The one writer of replica states and of the wanted number, by compare-and-set."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from backendai.base.core.messages import shortened
from backendai.base.db.bulk import among
from backendai.domain.serving.models import Endpoint, Replica, ScalingRecord, State

_AGAIN = timedelta(minutes=10)
ALLOWED: dict[State, frozenset[State]] = {
    State.STARTING: frozenset({State.LOADING, State.DRAINING, State.ENDED}),
    State.LOADING: frozenset({State.READY, State.DRAINING, State.ENDED}),
    State.READY: frozenset({State.DRAINING, State.ENDED}),
    State.DRAINING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}


def move_replicas(
    replica_ids: Collection[UUID], to: State, *, now: datetime, reason: str = "", message: str = "", **columns: Any
) -> set[UUID]:
    """Move the replicas whose state allows it and return them; app proxies learn it by the endpoint's version. Locks
    the rows; four statements."""
    if not replica_ids:
        return set()
    sources = [source for source, targets in ALLOWED.items() if to in targets]
    changes: dict[str, Any] = {"state": to} | columns
    if reason:
        changes |= {"reason": reason, "message": shortened(message, 500)}
    if to == State.ENDED:
        changes["ended_at"] = now
    with transaction.atomic():
        rows = Replica.objects.filter(pk__in=among(replica_ids), state__in=sources).order_by("pk")
        moved = dict(rows.select_for_update(of=("self",)).values_list("pk", "endpoint_id"))
        if not moved:
            return set()
        grow_versions(set(moved.values()))
        if to == State.DRAINING:
            versions = dict(Endpoint.objects.filter(pk__in=set(moved.values())).values_list("pk", "version"))
            for endpoint_id, version in versions.items():
                own = [pk for pk, of in moved.items() if of == endpoint_id]
                Replica.objects.filter(pk__in=own).update(**changes, drain_version=version)
        else:
            Replica.objects.filter(pk__in=list(moved)).update(**changes)
    return set(moved)


def claim(endpoint: Endpoint) -> bool:
    """Lock an endpoint that is as it was read; returns whether it is. The lock lasts until the end of the caller's
    transaction, in which the decision is carried out. Each change grows the version; a decision that a limit refuses
    changes nothing, and app proxies need not read the table again."""
    rows = Endpoint.objects.select_for_update(of=("self",), no_key=True).order_by()
    return bool(rows.filter(pk=endpoint.pk, version=endpoint.version).values_list("pk", flat=True))


def set_desired(
    endpoint: Endpoint, desired: int, *, now: datetime, panic_until: datetime | None, code: str, **about: Any
) -> bool:
    """Write the wanted number and the record of the decision if the endpoint is as it was read; returns whether."""
    seen = Endpoint.objects.filter(pk=endpoint.pk, version=endpoint.version)
    with transaction.atomic():
        if not seen.update(desired=desired, panic_until=panic_until, scaled_at=now, version=F("version") + 1):
            return False
        note(endpoint.pk, code, now=now, before=endpoint.desired, after=desired, **about)
    return True


def grow_versions(endpoint_ids: Collection[UUID]) -> None:
    """Let app proxies read these endpoints anew."""
    Endpoint.objects.filter(pk__in=list(endpoint_ids)).update(version=F("version") + 1)


def note(
    endpoint_id: UUID,
    code: str,
    *,
    now: datetime,
    message: str = "",
    data: Any = None,
    before: int = 0,
    after: int = 0,
) -> None:
    """Write a record of a decision; the same code and numbers as in the newest record count its attempts up."""
    newest = ScalingRecord.objects.filter(endpoint=endpoint_id).order_by("-pk").first()
    about = {"message": shortened(message, 500), "data": dict(data or {}), "updated_at": now}
    if newest and (newest.code, newest.before, newest.after) == (code, before, after):
        ScalingRecord.objects.filter(pk=newest.pk).update(attempts=F("attempts") + 1, **about)
        return
    ScalingRecord.objects.create(
        endpoint_id=endpoint_id, code=code, before=before, after=after, created_at=now, **about
    )


def note_again(endpoint_id: UUID, code: str, *, now: datetime, message: str, data: Any, number: int) -> None:
    """Write a record of a reason that came up. One of the last ten minutes with the same code counts up instead: a
    reason that comes and goes fills no list."""
    about = {"message": shortened(message, 500), "data": dict(data), "updated_at": now}
    recent = ScalingRecord.objects.filter(endpoint=endpoint_id, code=code, updated_at__gt=now - _AGAIN)
    if (last := recent.order_by("-pk").values_list("pk", flat=True).first()) is not None:
        ScalingRecord.objects.filter(pk=last).update(attempts=F("attempts") + 1, **about)
    else:
        ScalingRecord.objects.create(
            endpoint_id=endpoint_id, code=code, before=number, after=number, created_at=now, **about
        )
