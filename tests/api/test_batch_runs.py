"""Runs of arrays and pipelines over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.compute.models import ComputeSession
from backendai.domain.pipelines.models import Run
from backendai.portal.loops.loops import run_pipelines
from tests.api.callers import Caller
from tests.cast import Cast
from tests.pipelines.world import ARRAY, launch, play

pytestmark = pytest.mark.django_db
RUNS = "/api/v1/runs/"


def launched(caller: Caller, **document: Any) -> Any:
    answer = caller.post(RUNS, {"name": "sweep", "document": {**ARRAY, **document}})
    assert answer.status_code == 201, answer.json()
    return answer.json()


def test_an_array_is_launched_followed_repaired_and_cancelled(alice: Caller, cast: Cast) -> None:
    made = launched(alice, array=3)
    assert (made["kind"], made["size"], made["counts"]["waiting"]) == ("array", 3, 3)
    address = f"{RUNS}{made['id']}/"
    run = Run.objects.get()
    play(run, lambda one: "task-failed" if one.name.endswith("-1") else "task-finished")
    assert alice.get(address).json()["counts"] | {"succeeded": 2, "failed": 1} == alice.get(address).json()["counts"]
    (failure,) = alice.get(f"{address}failures/").json()["results"]
    assert (failure["index"], failure["reason"]) == (1, "The batch program failed.")
    rows = alice.get(f"{address}tasks/", state="FAILED").json()["results"]
    assert [(row["index"], row["attempt"]) for row in rows] == [(1, 1)]
    assert alice.post(f"{address}retry/").json()["status"] == "WAITING"
    run_pipelines(timezone.now())
    shown = alice.get(address).json()
    counts = shown["counts"]
    assert (shown["status"], counts["released"], counts["queued"], counts["running"]) == ("WAITING", 1, 1, 0)
    assert shown["waits"] == "The scheduler has not looked at it yet." == alice.get(RUNS).json()["results"][0]["waits"]
    answer = alice.get(f"{address}explain/", index=1).json()
    assert answer["reasons"][0]["message"]
    assert alice.post(f"{address}pause/").json()["status"] == "PAUSED"
    assert alice.post(f"{address}resume/").json()["status"] == "WAITING"
    assert alice.post(f"{address}at-once/", {"at_once": 5}).json()["at_once"] == 5
    assert alice.post(f"{address}cancel/").json()["status"] == "CANCELLED"
    assert alice.post(f"{address}cancel/").json()["code"] == "run-over"
    assert Caller(cast.bob).get(address).status_code == 404
    assert [one["id"] for one in alice.get(RUNS).json()["results"]] == [made["id"]]


def test_a_text_is_refused_with_its_place_and_nothing_is_written(alice: Caller) -> None:
    text = (
        "defaults: {image: python}\nsteps:\n  one: {startup_command: a}\n  two: {startup_command: b, after: [onee]}\n"
    )
    answer = alice.post(RUNS, {"text": text})
    told = answer.json()
    assert (answer.status_code, told["data"]["line"], told["code"]) == (400, 4, "invalid-document"), told
    assert alice.post("/api/v1/run-preview/", {"text": text.replace("onee", "one")}).json()["size"] == 2
    assert not Run.objects.exists()
    assert alice.post(RUNS, {}).status_code == 400


def test_the_same_key_answers_with_the_same_run(alice: Caller) -> None:
    body = {"document": {**ARRAY, "array": 2}}
    first = alice.post(RUNS, body, **{"Idempotency-Key": "one"})
    again = alice.post(RUNS, body, **{"Idempotency-Key": "one"})
    assert (first.status_code, again.status_code, first.json()["id"]) == (201, 200, again.json()["id"])


def test_a_batch_session_with_retry_is_launched_at_once_and_again_when_it_fails(alice: Caller, cast: Cast) -> None:
    body = {**ARRAY, "type": "batch", "name": "fragile", "retry": {"times": 1, "reasons": ["task-failed"]}}
    answer = alice.post("/api/v1/sessions/", body, **{"Idempotency-Key": "once"})
    assert answer.status_code == 201, answer.json()
    assert (answer.json()["name"], answer.json()["status"]) == ("fragile", "PENDING")
    again = alice.post("/api/v1/sessions/", body, **{"Idempotency-Key": "once"})
    assert (again.status_code, again.json()["id"]) == (200, answer.json()["id"])
    run = play(Run.objects.get(), lambda one: "task-finished" if one.name.endswith("-r2") else "task-failed")
    assert (run.status, run.size, ComputeSession.objects.count()) == ("SUCCEEDED", 1, 2)
    wrong = alice.post("/api/v1/sessions/", body | {"retry": {"times": 99}})
    assert wrong.status_code == 400 and "from 0 to 20" in str(wrong.json())
    single = alice.post("/api/v1/sessions/", body | {"type": "interactive", "startup_command": "", "retry": 1})
    assert single.status_code == 400 and ComputeSession.objects.count() == 2


def test_the_elements_of_a_long_run_come_in_pages_by_the_order_of_the_document(alice: Caller, cast: Cast) -> None:
    step = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "startup_command": "true"}
    steps = {"zeta": step, "alpha": {**step, "array": 1210, "after": "zeta"}, "beta": {**step, "after": "alpha"}}
    run = launch(cast.alice, name="long", steps=steps)
    found, address = [], f"{RUNS}{run.pk}/tasks/"
    while address:
        page = alice.get(address).json()
        found += [(one["step"], one["index"]) for one in page["results"]]
        address = page["next"]
    assert found == [("zeta", 0), *[("alpha", number) for number in range(1210)], ("beta", 0)]


def test_runs_are_found_by_the_labels_of_their_steps_which_their_sessions_have(alice: Caller) -> None:
    made = launched(alice, array=2, labels={"team": "vision", "lr": "0.1"}, note="Sweep")
    launched(alice, array=2)
    run_pipelines(timezone.now())
    found = ComputeSession.objects.filter(run_id=made["id"]).values_list("labels", "note")
    assert list(found) == [({"lr": "0.1", "team": "vision"}, "Sweep")] * 2
    for label, number in ((["team=vision"], 1), (["lr", "team"], 1), (["lr=0"], 0), ([], 2)):
        results = alice.get(RUNS, label=label).json()["results"]
        assert len(results) == number and all(one["id"] == made["id"] for one in results if label)
