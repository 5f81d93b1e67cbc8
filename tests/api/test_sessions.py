"""Launching, listing, looking at and ending sessions over REST."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, make_sessions

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def test_it_launches_a_session(alice: Caller) -> None:
    answer = alice.post(SESSIONS, LAUNCH | {"resource_group": "default"})
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["name"], body["status"], body["type"]) == ("train-1", "PENDING", "interactive")
    assert body["resources"] == {"cpu": "1", "mem": str(512 * 2**20)}
    assert [kernel["role"] for kernel in body["kernels"]] == ["main"]
    assert ComputeSession.objects.get(pk=body["id"]).owner == alice.user


def test_it_passes_on_every_field_of_a_launch(alice: Caller, cast: Cast) -> None:
    starts_at = (timezone.now() + timezone.timedelta(hours=1)).isoformat()
    body = {
        "name": "nightly", "type": "batch", "image": "python", "resources": {"cpu": 0.5, "mem": "1g"}, "shm": "128m",
        "environ": {"SEED": " 7 "}, "startup_command": "python train.py\n", "starts_at": starts_at, "cluster_size": 2,
        "project": cast.project.name, "resource_group": "default",
    }  # fmt: skip
    answer = alice.post(SESSIONS, body)
    assert answer.status_code == 201, answer.content
    session = ComputeSession.objects.get(pk=answer.json()["id"])
    assert session.startup_command == "python train.py\n"
    assert session.environ == {"SEED": " 7 "}
    assert session.shm_bytes == 128 * 2**20
    assert session.kernels.count() == 2
    assert session.starts_at is not None


def test_it_answers_200_with_the_same_session_for_a_repeated_key(alice: Caller) -> None:
    first = alice.post(SESSIONS, LAUNCH, **{"Idempotency-Key": "k1"})
    again = alice.post(SESSIONS, LAUNCH, **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert ComputeSession.objects.count() == 1


def test_it_keeps_the_keys_of_two_people_apart(alice: Caller, cast: Cast) -> None:
    mine = alice.post(SESSIONS, LAUNCH, **{"Idempotency-Key": "k1"})
    theirs = Caller(cast.bob).post(SESSIONS, LAUNCH, **{"Idempotency-Key": "k1"})
    assert theirs.status_code == 201
    assert theirs.json()["id"] != mine.json()["id"]


def test_it_answers_409_for_a_name_that_is_taken(alice: Caller) -> None:
    alice.post(SESSIONS, LAUNCH)
    answer = alice.post(SESSIONS, LAUNCH)
    assert answer.status_code == 409
    assert (answer.json()["code"], answer.json()["field"]) == ("name-taken", "name")


def test_it_shows_a_running_session_with_its_kernels(cast: Cast) -> None:
    agent = make_agent("node-7")
    session = make_running_session(cast.alice, agent, cluster_size=2)
    body = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/").json()
    assert (body["status"], body["result"], body["image"]) == ("RUNNING", "UNDEFINED", "python")
    assert [kernel["hostname"] for kernel in body["kernels"]] == ["main1", "sub1"]
    main = body["kernels"][0]
    assert (main["agent"], main["status"], main["exit_code"]) == ("node-7", "RUNNING", None)
    assert main["container_id"]


def test_it_shows_the_variables_to_the_owner_only(cast: Cast) -> None:
    session = make_session(cast.alice, environ={"API_KEY": "secret"})
    path = f"{SESSIONS}{session.pk}/"
    assert Caller(cast.alice).get(path).json()["environ"] == {"API_KEY": "secret"}
    answer = Caller(cast.dana).get(path)
    assert answer.json()["environ"] is None
    assert "secret" not in answer.content.decode()


def test_it_pages_newest_first_without_losing_or_repeating_any(cast: Cast) -> None:
    moment = timezone.now()
    made = [make_session(cast.alice).pk for _ in range(7)]
    ComputeSession.objects.update(created_at=moment)
    seen: list[str] = []
    alice, query = Caller(cast.alice), {"page_size": 3}
    answer = alice.get(SESSIONS, **query).json()
    while True:
        seen += [row["id"] for row in answer["results"]]
        if answer["next"] is None:
            break
        answer = alice.get(answer["next"]).json()
    assert sorted(seen) == sorted(str(pk) for pk in made)
    assert len(seen) == 7


def test_it_narrows_the_list(cast: Cast) -> None:
    running = make_running_session(cast.alice)
    batch = make_session(cast.alice, session_type="batch", startup_command="true")
    ended = make_session(cast.alice)
    ComputeSession.objects.filter(pk=ended.pk).update(status=Status.CANCELLED)
    bobs = make_session(cast.bob)

    def ids(user: Any, **query: Any) -> set[str]:
        return {row["id"] for row in Caller(user).get(SESSIONS, **query).json()["results"]}

    assert ids(cast.alice, status=["RUNNING", "CANCELLED"]) == {str(running.pk), str(ended.pk)}
    assert ids(cast.alice, live="true") == {str(running.pk), str(batch.pk)}
    assert ids(cast.alice, live="false") == {str(ended.pk)}
    assert ids(cast.alice, type="batch") == {str(batch.pk)}
    assert ids(cast.alice, name=running.name) == {str(running.pk)}
    assert ids(cast.dana, owner="bob@example.com") == {str(bobs.pk)}
    assert ids(cast.alice, owner="bob@example.com") == set()
    assert ids(cast.alice, resource_group="nowhere") == set()


@pytest.mark.parametrize(
    ("query", "field"), [({"status": "BUSY"}, "status"), ({"type": "x"}, "type"), ({"name": "a\0b"}, "name")]
)
def test_it_names_the_filter_that_is_wrong(cast: Cast, query: dict[str, str], field: str) -> None:
    answer = Caller(cast.alice).get(SESSIONS, **query)
    assert answer.status_code == 400
    assert answer.json()["field"] == field


@pytest.mark.parametrize("cursor", ["nonsense", "cD1ub3QtYS1kYXRl", "bz05OTk5OTk5OTk5OTk5", "%00"])
def test_it_refuses_a_cursor_that_was_tampered_with(cast: Cast, cursor: str) -> None:
    make_session(cast.alice)
    assert Caller(cast.alice).get(SESSIONS, cursor=cursor).status_code in (200, 404)


def test_it_terminates(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    answer = Caller(cast.alice).post(f"{SESSIONS}{session.pk}/terminate/", {"force": False})
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["status_reason"]) == ("TERMINATING", "user-requested")


def test_it_terminates_without_a_body_and_only_once(cast: Cast) -> None:
    session = make_session(cast.alice)
    alice, path = Caller(cast.alice), f"{SESSIONS}{session.pk}/terminate/"
    assert alice.post(path, b"").json()["status"] == "CANCELLED"
    again = alice.post(path)
    assert (again.status_code, again.json()["code"]) == (409, "already-ended")


def test_it_hides_foreign_sessions_as_if_they_were_not_there(cast: Cast) -> None:
    session = make_session(cast.alice)
    for stranger in (cast.bob, cast.charlie):
        caller = Caller(stranger)
        foreign = caller.get(f"{SESSIONS}{session.pk}/")
        missing = caller.get(f"{SESSIONS}{uuid.uuid4()}/")
        assert foreign.status_code == missing.status_code == 404
        assert foreign.content == missing.content
        assert caller.post(f"{SESSIONS}{session.pk}/terminate/").status_code == 404
        assert caller.get(SESSIONS).json()["results"] == []
    session.refresh_from_db()
    assert session.status == Status.PENDING


def test_it_lets_an_administrator_end_it_and_says_so(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    body = Caller(cast.dana).post(f"{SESSIONS}{session.pk}/terminate/").json()
    assert body["status_reason"] == "admin-requested"


def test_it_lists_kernels_and_history(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    alice = Caller(cast.alice)
    assert [row["status"] for row in alice.get(f"{SESSIONS}{session.pk}/kernels/").json()["results"]] == ["RUNNING"]
    rows = alice.get(f"{SESSIONS}{session.pk}/history/").json()["results"]
    assert rows[-1]["to_status"] == "PENDING"
    assert "RUNNING" in {row["to_status"] for row in rows}


@pytest.mark.parametrize("path", ["", "{one}/", "{one}/history/", "{one}/kernels/"])
def test_it_asks_the_database_as_often_for_thirty_sessions_as_for_one(
    cast: Cast, path: str, django_assert_max_num_queries: Any
) -> None:
    client = Client()
    client.force_login(cast.alice)
    one = make_running_session(cast.alice)
    address = SESSIONS + path.format(one=one.pk)
    with django_assert_max_num_queries(6) as first:
        assert client.get(address).status_code == 200
    make_sessions(cast.alice, 29, cluster_size=2)
    with django_assert_max_num_queries(len(first.captured_queries)):
        answer = client.get(address)
    if not path:
        assert len(answer.json()["results"]) == 30


def test_the_list_is_narrowed_by_where_what_and_when(cast: Cast) -> None:
    agent, day = make_agent("node-1"), timedelta(days=1)
    now = timezone.now()
    on_agent = make_running_session(cast.alice, agent, cluster_size=2, name="train-on-agent")
    other = make_session(cast.alice, name="other", image="r")
    ComputeSession.objects.filter(pk=other.pk).update(project=cast.elsewhere)
    old = make_session(cast.alice, name="train-old")
    over = {"created_at": now - 2 * day, "ended_at": now - day, "status": Status.TERMINATED}
    ComputeSession.objects.filter(pk=old.pk).update(**over)
    alice = Caller(cast.alice)
    for query, expected in (
        ({"agent": "node-1"}, [on_agent]),
        ({"agent": "node"}, []),
        ({"project": cast.elsewhere.name}, [other]),
        ({"image": "r"}, [other]),
        ({"search": "TRAIN"}, [on_agent, old]),
        ({"created_before": (now - day).isoformat()}, [old]),
        ({"created_after": (now - day).isoformat(), "search": "train"}, [on_agent]),
        ({"ended_after": (now - 2 * day).isoformat(), "ended_before": now.isoformat()}, [old]),
    ):
        answer = alice.get(SESSIONS, **query)
        assert answer.status_code == 200, answer.content
        assert {row["id"] for row in answer.json()["results"]} == {str(one.pk) for one in expected}, query
    for query in ({"created_after": "yesterday"}, {"ended_before": "0001-01-01T00:00:00+14:00"}):
        assert alice.get(SESSIONS, **query).json()["field"] == next(iter(query))


def test_labels_and_note_are_launched_found_and_changed(alice: Caller, cast: Cast) -> None:
    made = alice.post(SESSIONS, LAUNCH | {"labels": {"team": "vision", "run.id": 7}, "note": "Try 1"}).json()
    assert (made["labels"], made["note"]) == ({"run.id": "7", "team": "vision"}, "Try 1")
    alice.post(SESSIONS, LAUNCH | {"name": "other", "labels": {"team": "audio"}})
    for label, number in ((["team"], 2), (["team=vision"], 1), (["team", "run.id=7"], 1), (["team=a", "team"], 0)):
        assert len(alice.get(SESSIONS, label=label).json()["results"]) == number, label
    address = f"{SESSIONS}{made['id']}/labels/"
    changed = alice.post(address, {"labels": {"run.id": None, "metric": "0.93"}}).json()
    assert (changed["labels"], changed["note"]) == ({"metric": "0.93", "team": "vision"}, "Try 1")
    assert alice.post(address, {"note": ""}).json()["labels"] == changed["labels"]
    for body, field in (({"labels": {"No": "x"}}, "labels"), ({"note": "x" * 501}, "note")):
        answer = alice.post(address, body)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert Caller(cast.bob).post(address, {"labels": {}}).status_code == 404


def test_a_launch_without_a_required_label_is_refused_with_its_name(alice: Caller, cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="strict", required_labels=["team"])
    User.objects.filter(pk=cast.alice.pk).update(policy=policy)
    for path in (SESSIONS, "/api/v1/session-preview/"):
        answer = alice.post(path, LAUNCH)
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (400, "missing-label", "labels")
    assert alice.post(SESSIONS, LAUNCH | {"labels": {"team": "vision"}}).status_code == 201
