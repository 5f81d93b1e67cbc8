"""A toy model server behind the real decisions: Poisson arrivals, a fixed service time, a queue, slow cold starts."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from backendai.scheduler.serving.scale import decide_scale
from backendai.scheduler.serving.snapshot import EndpointView, LoadView, ReplicaState, ReplicaView

START = datetime(2026, 1, 1, tzinfo=UTC)
SERVICE, TARGET, LIMIT, STEP = 2.0, 4.0, 8, 2


@dataclass
class Toy:
    """Seconds pass in ``run``; what was seen is in ``counts`` (desired, by pass) and ``queues`` (by second)."""

    rate: object  # seconds → arrivals each second
    seed: int = 1
    cold_start: int = 90
    first: int = 1
    maximum: int = 16
    counts: list[int] = field(default_factory=list)
    queues: list[int] = field(default_factory=list)
    waited: float = 0.0
    arrived: int = 0

    def run(self, seconds: int) -> Toy:
        """Return itself after so many seconds."""
        dice, ready_at, desired = random.Random(self.seed), [0] * self.first, self.first
        busy: list[float] = []
        queue: deque[float] = deque()
        busy_means, arrivals, peaks = deque(maxlen=30), deque(maxlen=30), deque(maxlen=150)
        endpoint = EndpointView(UUID(int=1), minimum=1, maximum=self.maximum, target=TARGET, desired=desired)
        for second in range(seconds):
            came = _poisson(dice, self.rate(second))
            self.arrived += came
            queue.extend(second + dice.random() for _ in range(came))
            while busy and busy[0] <= second:
                heapq.heappop(busy)
            places = LIMIT * sum(at <= second for at in ready_at)
            while queue and len(busy) < places:
                self.waited += max(0.0, second - queue.popleft())
                heapq.heappush(busy, second + SERVICE)
            busy_means.append(len(busy))
            arrivals.append(came)
            self.queues.append(len(queue))
            if second % STEP:
                continue
            endpoint = replace(endpoint, load=_load(busy_means, arrivals, queue, busy, peaks))
            endpoint = replace(endpoint, replicas=_replicas(ready_at, second))
            now = START + timedelta(seconds=second)
            scale = decide_scale(endpoint, now)
            changed = now if scale.desired != endpoint.desired else endpoint.scaled_at
            endpoint = replace(endpoint, desired=scale.desired, panic_until=scale.panic_until, scaled_at=changed)
            self.counts.append(scale.desired)
            ready_at = sorted([*ready_at, *[second + self.cold_start] * (scale.desired - len(ready_at))])
            ready_at = ready_at[: scale.desired]
        return self

    @property
    def reversals(self) -> int:
        """How often the number changed its direction."""
        moves = [after > before for before, after in zip(self.counts, self.counts[1:], strict=False) if after != before]
        return sum(one != other for one, other in itertools.pairwise(moves))


def _load(means, arrivals, queue, busy, peaks):
    def over(seconds):
        mean = sum(list(means)[-seconds:]) / min(seconds, len(means))
        return max(mean, sum(list(arrivals)[-seconds:]) / min(seconds, len(arrivals)) * SERVICE)

    backlog = len(queue) * SERVICE / 60
    peaks.append(over(30) + backlog)
    return LoadView(over(6), over(30), max(peaks), backlog, len(queue), len(busy))


def _replicas(ready_at, second):
    return tuple(
        ReplicaView(UUID(int=number + 1), number, 1, ReplicaState.READY if at <= second else ReplicaState.LOADING)
        for number, at in enumerate(ready_at)
    )


def _poisson(dice, mean):
    count, passed = 0, dice.expovariate(1.0)
    while passed < mean:
        count, passed = count + 1, passed + dice.expovariate(1.0)
    return count
