"""What an agent counts for its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from backendai.agent.kernel_queues import Action

registry = CollectorRegistry()
_kernels = Gauge("backendai_agent_kernels", "Kernels that the agent knows.", registry=registry)
_actions = Gauge(
    "backendai_agent_actions", "Kernels and jobs with work under way or queued.", ("action",), registry=registry
)
_starts = Counter("backendai_agent_starts", "Starts of kernels, by their result.", ("result",), registry=registry)
_phases = Histogram(
    "backendai_agent_start_phase_seconds",
    "Length of the phases of starts: queue, fetch, pull, start, ready.",
    ("phase",),
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800),
    registry=registry,
)
_calls = Counter(
    "backendai_agent_portal_calls",
    "Calls to the portal by kind, and whether they were answered, refused or failed.",
    ("kind", "result"),
    registry=registry,
)
bundles = Histogram(
    "backendai_agent_bundle_length",
    "Questions and reports that shared one call to the portal.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    registry=registry,
)


failed_starts = _starts.labels("failed")


def watch_kernels(known: Callable[[], int], at_work: Callable[[Action], int]) -> None:
    """Let a scrape ask how many kernels there are, and how many each action holds."""
    _kernels.set_function(known)
    for action in get_args(Action):
        _actions.labels(action).set_function(partial(at_work, action))


def count_start(timings: Mapping[str, float]) -> None:
    """Count a start that succeeded, by the lengths of its phases in seconds."""
    _starts.labels("running").inc()
    for phase, seconds in timings.items():
        _phases.labels(phase).observe(seconds)


def count_call(path: str, result: str) -> None:
    """Count a call to the portal. Its kind is the last word of the path that has only letters."""
    words = [word for word in path.partition("?")[0].split("/") if word.isalpha()]
    _calls.labels(words[-1] if words else "other", result).inc()
