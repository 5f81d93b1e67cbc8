"""How long the decisions about inference endpoints take: 1,000 endpoints with 20 replicas each.

bin/bench serving [--json] [--rounds N]

Times are milliseconds of processor time, the median of several rounds. ``steady``: the load fits. ``busy``: half of the
endpoints scale up, a quarter is being updated, the rest scales down. ``replay``: one endpoint's last day, tried out.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from backendai.scheduler.serving.replay import Minute, replay
from backendai.scheduler.serving.rollout import decide_rollout
from backendai.scheduler.serving.scale import decide_scale
from backendai.scheduler.serving.snapshot import EndpointView, LoadView, ReplicaState, ReplicaView
from bench._command import command, show

NOW = datetime(2025, 1, 1, tzinfo=UTC)
ENDPOINTS, REPLICAS, MINUTES = 1_000, 20, 24 * 60


def main() -> None:
    """Measure and print."""
    options = command("serving", __doc__, {"rounds": (5, "how often each is measured")}).parse_args()
    show(options, run(options.rounds))


def run(rounds: int = 5) -> dict[str, float]:
    """Return the figures."""
    steady = [endpoint(number, load=4.0 * REPLICAS * 0.8) for number in range(ENDPOINTS)]
    loads = (200.0, 200.0, 64.0, 1.0)
    busy = [endpoint(one, load=loads[one % 4], following=2 if one % 4 == 2 else None) for one in range(ENDPOINTS)]
    day = [Minute(NOW + timedelta(minutes=one), load=one % 200 / 2, requests=9) for one in range(MINUTES)]
    return {
        "steady": median(lambda: decide(steady), rounds),
        "busy": median(lambda: decide(busy), rounds),
        "replay": median(lambda: list(replay(steady[0], day)), rounds),
    }


def endpoint(number: int, *, load: float, following: int | None = None) -> EndpointView:
    """Return an endpoint whose replicas all serve."""
    replicas = tuple(
        ReplicaView(UUID(int=number * 100 + one), one, 1, ReplicaState.READY, ready_at=NOW - timedelta(hours=1), open=3)
        for one in range(REPLICAS)
    )
    measured = LoadView(short=load, long=load, peak=load, open=int(load))
    return EndpointView(
        UUID(int=number), maximum=40, desired=REPLICAS, replicas=replicas, load=measured, next=following
    )


def decide(views: list[EndpointView]) -> None:
    """Decide about each, as a pass does."""
    for view in views:
        decide_rollout(view, decide_scale(view, NOW).desired, NOW)


def median(deed: Callable[[], object], rounds: int) -> float:
    """Return the milliseconds of processor time that it takes."""
    found = []
    for _ in range(rounds):
        gc.collect()
        begun = time.process_time()
        deed()
        found.append(1000 * (time.process_time() - begun))
    return round(statistics.median(found), 1)


if __name__ == "__main__":
    main()
