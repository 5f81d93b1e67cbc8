"""A session that waits because the scheduler has just said why."""

from __future__ import annotations

from django.utils import timezone

from backendai.domain.compute.models import ComputeSession
from backendai.portal.loops.group_pass import schedule
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session


def make_waiting_session(cast: Cast) -> ComputeSession:
    """Return a session of Alice's that needs one core more than the only agent has free."""
    make_running_session(cast.bob, make_agent("node-1", cpu=4), resources={"cpu": 3})
    session = make_session(cast.alice, resources={"cpu": 2, "mem": "512m"})
    schedule(session.resource_group, timezone.now())
    return session
