"""Ending many sessions at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.ending_many import MOST_ENDED, terminate_sessions
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session

pytestmark = pytest.mark.django_db


def statuses() -> dict[str, str]:
    return dict(ComputeSession.objects.values_list("name", "status"))


def test_what_lives_is_ended_and_of_each_other_one_it_is_said_why_not(cast: Cast) -> None:
    agent = make_agent()
    running, leaving = make_running_session(cast.alice, agent, name="runs"), make_running_session(cast.alice, agent)
    waiting, gone = make_session(cast.alice, name="waits"), make_session(cast.alice, name="gone")
    terminate_session(leaving, cast.alice)
    terminate_session(gone, cast.alice)
    bobs = make_session(cast.bob, name="bobs")
    AuditEntry.objects.all().delete()
    ids = [running.pk, bobs.pk, waiting.pk, gone.pk, leaving.pk, running.pk]
    done = terminate_sessions(cast.alice, ids, now=timezone.now())
    assert (done.ended.cancelled, done.ended.terminating) == ({waiting.pk}, {running.pk})
    assert [(one.id, one.name, one.code) for one in done.refused] == [
        (bobs.pk, "", "not-found"),
        (gone.pk, "gone", "already-ended"),
        (leaving.pk, leaving.name, "already-ending"),
    ]
    assert statuses()["bobs"] == "PENDING"
    entries = AuditEntry.objects.filter(action="session.terminate")
    assert {(entry.target_id, entry.details["name"]) for entry in entries} == {
        (str(running.pk), "runs"),
        (str(waiting.pk), "waits"),
    }


def test_an_administrator_ends_others_sessions_in_their_own_name(cast: Cast) -> None:
    theirs, own = make_session(cast.alice), make_session(cast.dana)
    terminate_sessions(cast.dana, [theirs.pk, own.pk], now=timezone.now())
    reasons = dict(ComputeSession.objects.values_list("pk", "status_reason"))
    assert reasons == {theirs.pk: "admin-requested", own.pk: "user-requested"}
    entry = AuditEntry.objects.get(action="session.terminate", target_id=str(theirs.pk))
    assert (entry.details["actor"], entry.details["owner"]) == ("dana@example.com", "alice@example.com")


def test_a_superadmin_frees_by_force_what_a_silent_node_holds(cast: Cast) -> None:
    agent = make_agent()
    sessions = [make_running_session(cast.alice, agent) for _ in range(2)]
    Agent.objects.update(status=Agent.Status.LOST, last_seen_at=timezone.now() - timedelta(hours=1))
    ids = [one.pk for one in sessions]
    done = terminate_sessions(cast.dana, ids, force=True, now=timezone.now())
    assert done.ended.forced == set(ids)
    assert set(statuses().values()) == {"TERMINATED"}
    assert not Allocation.objects.exists()
    assert all(one.details["forced"] for one in AuditEntry.objects.filter(action="session.terminate"))


def test_those_that_wait_for_one_of_them_are_cancelled_with_it(cast: Cast) -> None:
    batch = {"session_type": "batch", "startup_command": "true"}
    first = make_session(cast.alice, name="first", **batch)
    make_session(cast.alice, name="second", depends_on=("first",), **batch)
    terminate_sessions(cast.alice, [first.pk], now=timezone.now())
    assert statuses() == {"first": "CANCELLED", "second": "CANCELLED"}


def test_it_takes_as_many_statements_for_many_as_for_two(
    cast: Cast, django_assert_max_num_queries: Callable[..., Any], django_assert_num_queries: Callable[..., Any]
) -> None:
    agent = make_agent(cpu=64, mem="64g")

    def some(number: int) -> list[uuid.UUID]:
        made = [make_session(cast.alice) for _ in range(number)]
        return [one.pk for one in made + [make_running_session(cast.alice, agent) for _ in range(number)]]

    few, many = some(1), some(5)
    with django_assert_max_num_queries(40) as used:
        terminate_sessions(cast.alice, few, now=timezone.now())
    with django_assert_num_queries(len(used)):
        terminate_sessions(cast.alice, many, now=timezone.now())


def test_too_many_at_once_are_refused_with_nothing_ended(cast: Cast) -> None:
    session = make_session(cast.alice)
    with pytest.raises(UserError) as refused:
        terminate_sessions(cast.alice, [session.pk, *(uuid.uuid4() for _ in range(MOST_ENDED))], now=timezone.now())
    assert (refused.value.field, refused.value.code) == ("sessions", "too-many-sessions")
    assert ComputeSession.objects.get().status == "PENDING"


def test_it_answers_over_rest(cast: Cast, client: Client) -> None:
    mine, bobs = make_session(cast.alice), make_session(cast.bob)
    client.force_login(cast.alice)
    body = {"sessions": [str(mine.pk), str(bobs.pk)]}
    answer = client.post("/api/v1/sessions/terminate/", body, content_type="application/json")
    assert answer.status_code == 200
    assert answer.json() == {
        "cancelled": [str(mine.pk)],
        "terminating": [],
        "forced": [],
        "refused": [{"id": str(bobs.pk), "name": "", "code": "not-found", "message": "Session not found."}],
    }
    assert client.post("/api/v1/sessions/terminate/", {}, content_type="application/json").status_code == 400
