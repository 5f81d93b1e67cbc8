"""Computes an endpoint's health from its replicas. It is never stored, so that pages, REST and the audit agree."""

from __future__ import annotations

from enum import StrEnum

from backendai.scheduler.serving.snapshot import DesiredState, EndpointView


class Health(StrEnum):
    """Health of an endpoint."""

    ASLEEP = "asleep"  # no replica, and the next request starts one
    STARTING = "starting"
    SERVING = "serving"
    SCALING_UP = "scaling-up"  # more replicas start, and no earlier one is missing
    DEGRADED = "degraded"  # a replica that answered is missing, or another one does not start
    UNAVAILABLE = "unavailable"  # no replica answers, although some are wanted
    STOPPED = "stopped"


def reached_by(endpoint: EndpointView) -> int:
    """Return the most replicas that have answered at once, of those that are wanted now."""
    if endpoint.wish != DesiredState.RUN:
        return 0
    return min(max(endpoint.reached, sum(one.serves for one in endpoint.replicas)), endpoint.desired)


def health_of(endpoint: EndpointView) -> Health:
    """Return the endpoint's health."""
    if endpoint.wish != DesiredState.RUN:
        return Health.STOPPED
    answering = sum(one.serves for one in endpoint.replicas)
    if answering and answering >= endpoint.desired:
        return Health.SERVING
    has_failed = endpoint.results_of(endpoint.newest).failed_starts > 0
    if answering:
        return Health.SCALING_UP if answering >= endpoint.reached and not has_failed else Health.DEGRADED
    if endpoint.desired == 0 and endpoint.minimum == 0:
        return Health.ASLEEP
    has_silent = any(one.ready_at and not one.is_answering for one in endpoint.replicas)
    coming = any(one.is_coming for one in endpoint.replicas)
    return Health.UNAVAILABLE if has_silent or (has_failed and not coming) else Health.STARTING
