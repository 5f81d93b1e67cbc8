"""A launch answers with what is read of it later, and takes a fixed number of statements."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.compute.models import ComputeSession
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session

pytestmark = pytest.mark.django_db

RICH = LAUNCH | {
    "type": "batch", "startup_command": "python train.py\n", "environ": {"SEED": " 7 "}, "cluster_size": 3,
    "starts_at": (timezone.now() + timedelta(days=1)).astimezone(timezone.get_fixed_timezone(540)).isoformat(),
    "batch_timeout": "01:30:00.5", "placement": "pack", "priority": 3, "agents": ["node-7"],
    "launch_id": "11111111-2222-4333-8444-555555555555",
}  # fmt: skip


@pytest.fixture
def rows(cast: Cast) -> Cast:
    """At least one row of each kind that answers are made of, with and without what may be missing."""
    agent = make_agent("node-7", notes=[{"code": "no-gpu", "message": "No GPU.", "fix": "Add one."}])
    make_running_session(cast.alice, agent, cluster_size=2, environ={"A": "b"})
    make_session(cast.alice, session_type="batch", startup_command="true", batch_timeout=timedelta(minutes=90))
    ResourcePreset.objects.create(name="small", slots={"cpu": 1}, shm_bytes=2**20)
    ResourcePreset.objects.create(name="own", slots={"cpu": 1, "mem": "1g"}, resource_group=make_group())
    return cast


@pytest.mark.parametrize("launch", [LAUNCH, RICH], ids=["plain", "rich"])
def test_a_launch_answers_with_what_is_read_of_it_afterwards(cast: Cast, launch: dict[str, Any]) -> None:
    make_agent("node-7")
    make_image()
    alice = Caller(cast.alice)
    answer = alice.post(SESSIONS, launch, **{"Idempotency-Key": "k1"})
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert len(body["kernels"]) == launch.get("cluster_size", 1)
    assert alice.get(f"{SESSIONS}{body['id']}/").json() == body
    again = alice.post(SESSIONS, launch, **{"Idempotency-Key": "k1"})
    assert (again.status_code, again.json()) == (200, body)


def test_a_launch_takes_a_fixed_number_of_statements(cast: Cast, django_assert_num_queries: Any) -> None:
    make_agent("node-7")
    make_image()
    alice = Caller(cast.alice)
    alice.post(SESSIONS, LAUNCH | {"name": "first"})  # notes that the token was used
    for number in range(3):
        make_agent(f"other-{number}")
        make_group(f"group-{number}")
    # Who asks, project, group, image, agents, key pair; begin, session, kernels, history, audit, notice, commit.
    with django_assert_num_queries(16):
        assert alice.post(SESSIONS, LAUNCH | {"name": "second", "cluster_size": 4}).status_code == 201


def test_an_end_takes_a_fixed_number_of_statements(
    cast: Cast, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    agent = make_agent("node-7")
    one = make_running_session(cast.alice, agent)
    many = make_running_session(cast.alice, agent, cluster_size=3)
    alice = Caller(cast.alice)
    alice.get(SESSIONS)  # notes that the token was used
    with django_assert_max_num_queries(23) as first:
        assert alice.post(f"{SESSIONS}{one.pk}/terminate/").status_code == 200
    with django_assert_num_queries(len(first.captured_queries)):
        assert alice.post(f"{SESSIONS}{many.pk}/terminate/").status_code == 200


@pytest.mark.parametrize("query", [{}, {"live": "true", "status": "RUNNING"}])
def test_a_list_takes_five_statements_whatever_is_asked(
    rows: Cast, query: dict[str, str], django_assert_num_queries: Any
) -> None:
    alice = Caller(rows.alice)
    alice.get(SESSIONS)  # notes that the token was used
    with django_assert_num_queries(5):  # who asks, sessions, kernels, mounts, those that must end first
        assert alice.get(SESSIONS, **query).json()["results"]


def test_what_one_request_is_refused_for_says_nothing_in_the_next(cast: Cast) -> None:
    make_group()
    make_image()
    alice = Caller(cast.alice)
    wrong = alice.post(SESSIONS, LAUNCH | {"image": None, "resources": {"cpu": True}, "environ": {"A": None}})
    assert wrong.status_code == 400
    assert {error["field"] for error in wrong.json()["errors"]} == {"image", "resources.cpu", "environ.A"}
    assert alice.post(SESSIONS, LAUNCH).status_code == 201
    assert ComputeSession.objects.get().environ == {}
