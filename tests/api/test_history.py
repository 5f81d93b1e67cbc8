"""The scheduling history over REST."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, make_sessions, place, report_of
from tests.waiting import make_waiting_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NOWHERE = "The registry does not know it."


@pytest.fixture
def failed(cast: Cast) -> ComputeSession:
    """A session that waited, was placed, and whose image is nowhere."""
    agent, session = make_agent("node-1"), make_session(cast.alice)
    wait = Waiting(session.pk, "no-room", "cpu: 8 asked, 2 free.", steps=[{"step": "fit", "result": "FAILURE"}])
    for _ in range(3):
        note_waits([wait], now=timezone.now())
    place(session, agent)
    kernel = session.kernels.get()
    kernel_reported(agent, report_of(kernel, KernelState.PULLING))
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, reason="image-not-found", message=NOWHERE))
    return session


def history(person: Any, session: ComputeSession, **query: Any) -> list[dict[str, Any]]:
    answer = Caller(person).get(f"{SESSIONS}{session.pk}/history/", **query)
    assert answer.status_code == 200, answer.content
    return list(answer.json()["results"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"phase": "precondition"}, ["PULLING", "TERMINATING"]),
        ({"phase": ["precondition", "terminate"]}, ["PULLING", "TERMINATING", "ERROR"]),
        ({"result": "NEED_RETRY"}, ["PENDING"]),
        ({"from_status": "SCHEDULED"}, ["PULLING"]),
        ({"to_status": "ERROR"}, ["ERROR"]),
        ({"error_code": "image-not-found"}, ["TERMINATING", "ERROR"]),
        ({"result": "FAILURE"}, ["TERMINATING", "ERROR"]),
        ({"error_code": "image"}, []),
        ({"message": "8 ASKED"}, ["PENDING"]),
        ({"message": "registry", "phase": "precondition"}, ["TERMINATING"]),
        ({"message": "registry", "phase": "run"}, []),
    ],
)
def test_each_filter_narrows_the_rows(
    cast: Cast, failed: ComputeSession, query: dict[str, Any], found: list[str]
) -> None:
    assert [row["to_status"] for row in history(cast.alice, failed, ordering="created_at", **query)] == found


def test_a_message_is_found_as_a_sentence(cast: Cast) -> None:
    waiting = make_waiting_session(cast)
    address = f"{SESSIONS}{waiting.pk}/history/"

    def found(words: str, language: str = "en") -> int:
        answer = Caller(cast.alice).get(address, {"Accept-Language": language}, message=words)
        return len(answer.json()["results"])

    assert [found(words) for words in ("room for 2 CPU cores, 512 MiB", "1 of 1 agents ruled out")] == [1, 1]
    assert [found(words) for words in ("{asked}", "values", "지금 2 CPU 코어")] == [0, 0, 0]
    assert found("지금 2 CPU 코어", "ko") == 1


def test_a_row_is_found_by_its_id_alone(cast: Cast, failed: ComputeSession) -> None:
    rows = history(cast.alice, failed)
    assert history(cast.alice, failed, id=rows[1]["id"]) == [rows[1]]
    assert uuid.UUID(rows[1]["id"]) == SchedulingRecord.objects.get(to_status="TERMINATING").uid
    assert history(cast.alice, failed, id=uuid.uuid4()) == []
    answer = Caller(cast.alice).get(f"{SESSIONS}{failed.pk}/history/", id="17")
    assert answer.status_code == 400


@pytest.mark.parametrize("column", ["created_at", "updated_at"])
def test_rows_are_sorted_by_either_time_both_ways(cast: Cast, failed: ComputeSession, column: str) -> None:
    upwards = [row[column] for row in history(cast.alice, failed, ordering=column)]
    downwards = [row[column] for row in history(cast.alice, failed, ordering=f"-{column}")]
    assert len(upwards) == 6
    assert upwards == sorted(upwards)
    assert downwards == upwards[::-1]


@pytest.mark.parametrize("ordering", ["created_at", "-created_at", "updated_at", "-updated_at"])
def test_pages_of_any_order_hold_every_row_once(cast: Cast, failed: ComputeSession, ordering: str) -> None:
    SchedulingRecord.objects.update(created_at=timezone.now(), updated_at=timezone.now())
    caller, path, seen = Caller(cast.alice), f"{SESSIONS}{failed.pk}/history/?page_size=2&ordering={ordering}", []
    while path:
        body = caller.get(path).json()
        seen += [row["id"] for row in body["results"]]
        path = body["next"]
    assert len(seen) == len(set(seen)) == 6


def test_every_step_has_all_of_its_fields(cast: Cast, failed: ComputeSession) -> None:
    waited = history(cast.alice, failed, result="NEED_RETRY")[0]
    assert waited["attempts"] == 3
    step = waited["sub_steps"][0]
    assert step | {"started_at": "", "ended_at": ""} == {
        "step": "fit", "result": "FAILURE", "message": "", "values": {}, "error_code": "", "started_at": "",
        "ended_at": "",
    }  # fmt: skip
    assert datetime.fromisoformat(step["started_at"]) == datetime.fromisoformat(waited["created_at"])
    pull = history(cast.alice, failed, to_status="TERMINATING")[0]["sub_steps"][-1]
    assert (pull["step"], pull["result"], pull["error_code"]) == ("pull", "FAILURE", "image-not-found")
    assert pull["message"].startswith("main1 on node-1: 0.")
    assert pull["values"]["part1"]["values"]["agent"] == "node-1"


def test_a_row_and_its_session_have_the_values_of_their_messages(cast: Cast) -> None:
    session = make_session(cast.alice)
    message = Message("{asked} asked for, {free} available", asked="8 CPU cores", free="2")
    note_waits([Waiting(session.pk, "slot-shortage", message)], now=timezone.now())
    values = {"asked": "8 CPU cores", "free": "2"}
    assert history(cast.alice, session)[0]["values"] == values
    assert Caller(cast.alice).get(f"{SESSIONS}{session.pk}/").json()["status_values"] == values


def test_it_asks_the_database_as_often_for_many_rows_as_for_few(
    cast: Cast, failed: ComputeSession, django_assert_max_num_queries: Any
) -> None:
    caller, path = Caller(cast.alice), f"{SESSIONS}{failed.pk}/history/"
    with django_assert_max_num_queries(4) as few:
        caller.get(path, phase="schedule", message="x")
    others = enumerate(make_sessions(cast.alice, 40))
    note_waits([Waiting(one.pk, f"code-{number}", "x") for number, one in others], now=timezone.now())
    SchedulingRecord.objects.update(session=failed)
    with django_assert_max_num_queries(len(few.captured_queries)):
        assert len(caller.get(path).json()["results"]) == 50


def test_a_session_tells_its_place_in_the_queue_and_its_end_at_the_latest(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="short", max_session_lifetime=timedelta(hours=3))
    cast.alice.save()
    waiting, running = make_session(cast.alice), make_running_session(cast.alice)
    note_waits([Waiting(waiting.pk, "no-room", "cpu: 8 asked, 2 free.", position=4)], now=timezone.now())
    caller = Caller(cast.alice)
    waits, runs = (caller.get(f"{SESSIONS}{one.pk}/").json() for one in (waiting, running))
    assert (waits["queue_position"], waits["ends_at"]) == (4, None)
    assert runs["queue_position"] is None
    assert datetime.fromisoformat(runs["ends_at"]) == running.started_at + timedelta(hours=3)
