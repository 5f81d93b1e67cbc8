"""The wishes of a launch over REST: kept, shown, and refused as problems that name field, number and limit."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_session

pytestmark = pytest.mark.django_db
BATCH = LAUNCH | {"type": "batch", "startup_command": "true"}


def test_it_passes_on_every_wish(alice: Caller, cast: Cast) -> None:
    agent, launch = make_agent("node-1"), str(uuid.uuid4())
    first = make_session(cast.alice, name="first", session_type="batch", startup_command="true")
    wishes = {
        "priority": 0, "batch_timeout": 90, "depends_on": ["first"], "agents": ["node-1"], "placement": "pack",
        "launch_id": launch,
    }  # fmt: skip
    answer = alice.post(SESSIONS, BATCH | wishes)
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["priority"], body["batch_timeout"], body["placement"]) == (0, "00:01:30", "pack")
    assert (body["designated_agents"], body["launch_id"]) == ([str(agent.pk)], launch)
    session = ComputeSession.objects.get(pk=body["id"])
    assert session.batch_timeout == timedelta(seconds=90)
    assert list(session.depends_on.all()) == [first]
    assert alice.get(f"{SESSIONS}{session.pk}/").json()["depends_on"] == body["depends_on"] == [str(first.pk)]
    assert body["depends_when"] == "success"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("90", 90), (90.5, 90.5), ("1:30", 90)],
)
def test_a_timeout_is_written_as_elsewhere(alice: Caller, said: Any, seconds: float) -> None:
    body = alice.post(SESSIONS, BATCH | {"batch_timeout": said}).json()
    assert ComputeSession.objects.get(pk=body["id"]).batch_timeout == timedelta(seconds=seconds)


def test_without_wishes_it_has_the_usual_priority_and_a_launch_of_its_own(alice: Caller) -> None:
    body = alice.post(SESSIONS, LAUNCH).json()
    assert (body["priority"], body["batch_timeout"], body["placement"], body["designated_agents"]) == (10, None, "", [])
    assert uuid.UUID(body["launch_id"])


@pytest.mark.parametrize(
    ("wish", "field", "code"),
    [
        ({"priority": 101}, "priority", "invalid-priority"),
        ({"priority": "high"}, "priority", "invalid-request"),
        ({"priority": 31}, "priority", "priority-too-high"),
        ({"batch_timeout": 0}, "batch_timeout", "invalid-batch-timeout"),
        ({"batch_timeout": 0, "environ": {"1A": ""}, "cluster_size": 0}, "batch_timeout", "invalid-batch-timeout"),
        ({"batch_timeout": -1}, "batch_timeout", "invalid-batch-timeout"),
        ({"batch_timeout": ""}, "batch_timeout", "invalid-batch-timeout"),
        ({"batch_timeout": "soon"}, "batch_timeout", "invalid-request"),
        ({"batch_timeout": "999999999d"}, "batch_timeout", "invalid-request"),
        ({"batch_timeout": "9999999999"}, "batch_timeout", "invalid-request"),
        ({"depends_on": ["nothing"]}, "depends_on", "unknown-depends-on"),
        ({"depends_on": ["train-1"]}, "depends_on", "depends-on-itself"),
        ({"depends_on": "train-0"}, "depends_on", "invalid-request"),
        ({"agents": ["nowhere"]}, "agents", "unknown-agents"),
        ({"placement": "sideways"}, "placement", "invalid-placement"),
        ({"launch_id": "x"}, "launch_id", "invalid-request"),
    ],
)
def test_a_wish_that_cannot_be_met_is_a_problem_at_its_field(
    alice: Caller, cast: Cast, wish: dict[str, Any], field: str, code: str
) -> None:
    cast.project.policy = ResourcePolicy.objects.create(name="p", max_priority=30)
    cast.project.save()
    answer = alice.post(SESSIONS, BATCH | wish)
    assert answer.status_code == 400
    assert (answer.json()["field"].split(".")[0], answer.json()["code"]) == (field, code)
    assert not ComputeSession.objects.exists()


def test_a_refused_priority_carries_its_numbers_as_data(alice: Caller, cast: Cast) -> None:
    cast.project.policy = ResourcePolicy.objects.create(name="p", max_priority=30)
    cast.project.save()
    problem = alice.post(SESSIONS, LAUNCH | {"priority": 31}).json()
    assert problem["detail"] == "Priority 31 requested, but project vision may have at most 30."
    assert problem["data"].items() >= {"wanted": 31, "limit": 30, "scope": "project"}.items()


def test_what_would_wait_beyond_a_limit_is_a_conflict_with_scope_number_and_limit(alice: Caller, cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="p", max_pending_sessions=1)
    cast.alice.save()
    assert alice.post(SESSIONS, LAUNCH | {"name": "one-1"}).status_code == 201
    answer = alice.post(SESSIONS, LAUNCH | {"name": "two-2"}, **{"Idempotency-Key": "again"})
    assert (answer.status_code, answer.json()["code"]) == (409, "pending-limit")
    assert answer.json()["data"] == {
        "scope": "user", "name": "alice@example.com", "what": "sessions", "number": 1, "limit": 1,
        "holder": "user alice@example.com",
    }  # fmt: skip
    ComputeSession.objects.all().delete()
    assert alice.post(SESSIONS, LAUNCH | {"name": "two-2"}, **{"Idempotency-Key": "again"}).status_code == 201
