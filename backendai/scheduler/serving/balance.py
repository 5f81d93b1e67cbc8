"""Load balancing between the replicas of an endpoint. Pure functions of the state that one app proxy knows."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Generic, TypeVar

FAILURES = 3  # consecutive ones, before a replica is ejected
_EJECTED_SECONDS, _MOST_EJECTED_SECONDS = 10.0, 120.0
BUSIER = 1.25  # × the mean: how busy a replica may be to keep its sticky keys
_COLDEST = 0.1
_FAULTS = frozenset({502, 504})
_Id = TypeVar("_Id", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Candidate(Generic[_Id]):
    """A replica as an app proxy sees it. ``open``: the number of its current requests. ``limit``: the most concurrent
    requests (0: unlimited). ``weight``: grows to 1 during warm-up."""

    id: _Id
    open: int = 0
    weight: float = 1.0
    limit: int = 0

    @property
    def has_room(self) -> bool:
        """Whether the replica's limit allows another request."""
        return not self.limit or self.open < self.limit


@dataclass(frozen=True, slots=True)
class ReplicaHealth(Generic[_Id]):
    """Results of requests and probes to a replica. ``ejected_until``: on the proxy's monotonic clock (0: not
    ejected)."""

    id: _Id
    has_answered: bool
    ejected_until: float = 0.0


def choose_replica(candidates: Sequence[Candidate[_Id]], draw: float, avoid: Collection[_Id] = ()) -> _Id | None:
    """Return the replica with room and the smallest (open requests + 1) ÷ weight; None if no replica has room. ``draw``
    (0 to 1, random) decides between equal ones."""
    able = [(_price(one), one) for one in candidates if one.has_room and one.id not in avoid]
    if not able:
        return None
    least = min(price for price, _ in able)
    equal = [one for price, one in able if price <= least]
    return equal[min(int(draw * len(equal)), len(equal) - 1)].id


def keep_to(candidates: Sequence[Candidate[_Id]], key: str, avoid: Collection[_Id] = ()) -> _Id | None:
    """Return the replica to which requests with this key stick; None if no replica can take the request.

    A replica that is full, or has more than ``BUSIER`` times the mean load, is skipped. Then the next replica in the
    key's order is checked.
    """
    able = [one for one in candidates if one.id not in avoid]
    most = ceil(BUSIER * (sum(one.open for one in able) + 1) / max(len(able), 1))
    order = sorted(able, key=lambda one: sha256(f"{key}\0{one.id}".encode(errors="surrogateescape")).digest())
    return next((one.id for one in order if one.has_room and one.open < most), None)


def warmth(age: float, warm_up: float) -> float:
    """Return the weight of a replica during warm-up, ``age`` seconds after its first answer: from 0.1 to 1."""
    return 1.0 if age >= warm_up else _COLDEST + (1.0 - _COLDEST) * max(age, 0.0) / warm_up


def eject(sights: Sequence[ReplicaHealth[_Id]], now: float) -> frozenset[_Id]:
    """Return the replicas that get no requests at ``now``: they never answered, or are ejected because of faults. If
    more than half of the replicas that have answered are ejected, only the ones that never answered are returned."""
    known = [one for one in sights if one.has_answered]
    silent = {one.id for one in sights if not one.has_answered}
    out = {one.id for one in known if one.ejected_until > now}
    return frozenset(silent if 2 * len(out) > len(known) else silent | out)


def ejected_for(times: int) -> float:
    """Return the seconds that the ``times``-th consecutive ejection lasts."""
    return min(_EJECTED_SECONDS * max(times, 1), _MOST_EJECTED_SECONDS)


def is_fault(status: int) -> bool:
    """Return whether the status of a response counts as a fault of its replica. 429 and 503 mean that the replica is
    busy; other errors come from the model."""
    return status in _FAULTS


def _price(one: Candidate[Any]) -> float:
    return (one.open + 1) / max(one.weight, 0.01)
