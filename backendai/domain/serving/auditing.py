"""What always holds of endpoints and replicas: each check returns the violations that it sees, one sentence each."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F

from backendai.domain.compute.auditing import Check, Violations, World
from backendai.domain.compute.status import LIVE, TERMINAL
from backendai.domain.serving.models import DesiredState, Endpoint, Replica, State

_SLACK = timedelta(minutes=2)


def replicas_follow_their_sessions(world: World) -> Violations:
    """S-01: no replica outlives its session, and none has ended while its session lives."""
    late = world.now - _SLACK
    alive = Replica.objects.live().filter(session__status__in=TERMINAL, session__ended_at__lt=late)
    ended = Replica.objects.filter(state=State.ENDED, session__status__in=LIVE)
    return [f"replica {one.pk} is {one.state} though its session has ended" for one in alive] + [
        f"replica {one.pk} has ended though its session lives" for one in ended
    ]


def drains_end(world: World) -> Violations:
    """S-02: no replica drains beyond its deadline."""
    rows = Replica.objects.filter(state=State.DRAINING, drain_by__lt=world.now - _SLACK, session__status__in=LIVE)
    waiting = rows.exclude(session__status="TERMINATING")
    return [f"replica {one.pk} drains though its time was over at {one.drain_by}" for one in waiting]


def numbers_are_within_limits(world: World) -> Violations:
    """S-03: the wanted number of an endpoint that runs is within its limits, or 0 while it sleeps."""
    rows = Endpoint.objects.filter(wish=DesiredState.RUN, desired__gt=F("maximum"), created_at__lt=world.now - _SLACK)
    late = rows.exclude(scaled_at__gt=world.now - _SLACK)
    return [f"endpoint {one.pk} wants {one.desired} replicas, {one.maximum} are allowed" for one in late]


def replicas_have_their_revision(world: World) -> Violations:
    """S-04: a replica runs a revision of its own endpoint."""
    rows = Replica.objects.exclude(revision__endpoint=F("endpoint"))
    return [f"replica {one.pk} runs a revision of another endpoint" for one in rows]


SERVING_CHECKS: dict[str, Check] = {
    "S-01": replicas_follow_their_sessions,
    "S-02": drains_end,
    "S-03": numbers_are_within_limits,
    "S-04": replicas_have_their_revision,
}
