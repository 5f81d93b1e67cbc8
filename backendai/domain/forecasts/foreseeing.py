"""Forecasts when the pending sessions of a resource group start, and stores that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.base.db.bulk import among
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.notices.owners import TELL_BEFORE, tell_of_starts
from backendai.domain.compute.status import PLACED
from backendai.domain.forecasts.launches import MOST, store_free, why_unknown
from backendai.domain.forecasts.learning import FEATURES, Features, counts_of, keys_of
from backendai.domain.forecasts.models import StartForecast
from backendai.domain.forecasts.scoring import spread_in
from backendai.domain.planning.deciding import decide_apart
from backendai.domain.planning.preempting import shares_of
from backendai.domain.planning.snapshot import read_snapshot
from backendai.scheduler.forecasts.lengths import length_at
from backendai.scheduler.forecasts.ranges import METHOD, Spread, range_of
from backendai.scheduler.forecasts.starts import Foreseen, foresee_starts
from backendai.scheduler.forecasts.world import Held, Occupant
from backendai.scheduler.snapshot import Holder, Snapshot

_LIKELY, _SLOW = 0.5, 0.9
_STILL, _STEADY = timedelta(seconds=20), 0.05  # smaller changes are not written

_Placed = tuple[Features, datetime | None, datetime | None, tuple[Held, ...], Holder]


def forecast_group(group: ResourceGroup, now: datetime) -> int:
    """Forecast the starts of the first ``MOST`` pending sessions that a pass would let wait, and store what becomes
    free; returns how many forecasts changed. A fixed number of statements. Raises WrongRules."""
    decision = decide_apart(read_snapshot(group, now, even_if_idle=True))
    waits = sorted((each for each in decision.plan.waits if not each.reason.never), key=lambda each: each.position)
    waiting = {each.session_id: each.reason.until for each in waits[:MOST]}
    placed_now = {each.session_id for each in decision.plan.placements}
    pending = tuple(each for each in decision.snapshot.pending if each.id in waiting or each.id in placed_now)
    snapshot = replace(decision.snapshot, pending=pending)
    placed = _read_placed(group, placed_now)
    features = [Features(*row) for row in _features(waiting.keys() | placed_now)]
    counts = counts_of({key for one in (*features, *(row[0] for row in placed)) for key in keys_of(one)})
    likely, slow = (_foresee(snapshot, placed, features, counts, share, now) for share in (_LIKELY, _SLOW))
    store_free(group, likely, now)
    return _store(group, waiting, likely, slow, spread_in(group), now)


def _foresee(
    snapshot: Snapshot,
    placed: Iterable[_Placed],
    features: Iterable[Features],
    counts: Mapping[str, list[float]],
    share: float,
    now: datetime,
) -> Foreseen:
    by_id = {each.pk: each for each in features}

    def length_of(pk: UUID) -> timedelta | None:
        return length_at(share, _known(by_id[pk], counts)) if pk in by_id else None

    occupants = [_occupant(row, counts, share, now) for row in placed]
    return foresee_starts(snapshot, occupants, length_of, with_moments=share == _LIKELY)


def _occupant(row: _Placed, counts: Mapping[str, list[float]], share: float, now: datetime) -> Occupant:
    features, started_at, latest_end, held, holder = row
    began = started_at or now
    length = length_at(share, _known(features, counts), beyond=max(now - began, timedelta(0)))
    ends = [at for at in (began + length if length else None, latest_end) if at is not None]
    return Occupant(features.pk, held, holder, min(ends, default=None), latest_end)


def _known(features: Features, counts: Mapping[str, list[float]]) -> list[list[float]]:
    return [counts[key] for key in keys_of(features) if key in counts]


def _features(ids: set[UUID]) -> Any:
    return ComputeSession.objects.filter(pk__in=among(ids)).order_by().values_list(*FEATURES)


def _read_placed(group: ResourceGroup, without: set[UUID]) -> list[_Placed]:
    """Return the placed sessions of the group with what their kernels hold. One query."""
    more = ("started_at", "ends_at", "access_key", "project_id", "project__domain_id")
    columns = [f"session__{name}" for name in (*FEATURES, *more)]
    kernels = Kernel.objects.filter(session__resource_group=group, status__in=PLACED, agent__isnull=False).order_by()
    held: dict[UUID, list[Held]] = defaultdict(list)
    rows: dict[UUID, Any] = {}
    for agent, slots, devices, *row in kernels.values_list("agent_id", "slots", "devices", *columns):
        if row[0] not in without:
            held[row[0]].append(Held(agent, Slots.parse(slots), shares_of(devices)))
            rows[row[0]] = row
    return [_placed(row, tuple(held[pk])) for pk, row in rows.items()]


def _placed(row: Any, held: tuple[Held, ...]) -> _Placed:
    features = Features(*row[: len(FEATURES)])
    started_at, ends_at, access_key, project, domain = row[len(FEATURES) :]
    key_pair = f"key-pair:{access_key}" if access_key else ""
    holder = Holder(f"user:{features.owner_id}", key_pair, f"project:{project}", f"domain:{domain}")
    return features, started_at, ends_at, held, holder


def _store(
    group: ResourceGroup,
    waiting: Mapping[UUID, datetime | None],
    likely: Foreseen,
    slow: Foreseen,
    spread: Spread,
    now: datetime,
) -> int:
    old = {each.pk: each for each in StartForecast.objects.filter(pk__in=among(waiting.keys()))}
    new, changed, soon = [], [], []
    for pk, until in waiting.items():
        told = old.get(pk)
        fresh = _forecast(pk, group, likely, slow, spread, now)
        if until is not None and fresh.expected is not None:
            _cap(fresh, until)
        if fresh.is_reliable and fresh.expected and fresh.expected <= now + TELL_BEFORE:
            soon.append(pk)
        if told is None:
            new.append(fresh)
        elif _differs(told, fresh, now):
            changed.append(_updated(told, fresh))
    StartForecast.objects.bulk_create(new, ignore_conflicts=True)
    StartForecast.objects.bulk_update(changed, [*_NOW, *_FIRST])
    if soon:
        tell_of_starts(soon, now=now)
    return len(new) + len(changed)


_NOW = ("expected", "early", "late", "latest", "is_reliable", "code", "endless", "updated_at", "method")
_FIRST = ("first_at", "first_expected", "first_early", "first_late")


def _forecast(
    pk: UUID, group: ResourceGroup, likely: Foreseen, slow: Foreseen, spread: Spread, now: datetime
) -> StartForecast:
    made = StartForecast(session_id=pk, resource_group=group, updated_at=now, method=METHOD, endless=likely.endless)
    expected = likely.starts.get(pk)
    if expected is None:
        made.code = why_unknown(likely.was_cut, likely.endless)
        return made
    made.expected, made.is_reliable = expected, spread.is_reliable
    made.early, made.late, made.latest = range_of(now, expected, slow.starts.get(pk, expected), spread)
    made.first_at, made.first_expected = now, expected
    made.first_early, made.first_late = made.early, made.late
    return made


def _cap(forecast: StartForecast, until: datetime) -> None:
    """Let no time of the forecast be after the reserved start."""
    for name in ("expected", "early", "late", "latest", "first_expected", "first_early", "first_late"):
        setattr(forecast, name, min(getattr(forecast, name), until))


def _updated(told: StartForecast, fresh: StartForecast) -> StartForecast:
    for name in _NOW if told.first_at else (*_NOW, *_FIRST):
        setattr(told, name, getattr(fresh, name))
    return told


def _differs(told: StartForecast, fresh: StartForecast, now: datetime) -> bool:
    if told.code != fresh.code or told.expected is None or fresh.expected is None:
        return (told.code, told.endless, told.expected) != (fresh.code, fresh.endless, fresh.expected)
    return abs(fresh.expected - told.expected) > max(_STILL, (fresh.expected - now) * _STEADY)
