"""Arrays: many elements of one request, released late, repaired by one button."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.models import Attempt, Run, Status, Task
from backendai.domain.pipelines.services.changing import cancel_run, pause_run, resume_run, retry_failed
from backendai.domain.pipelines.services.creating import RunSpec, create_run
from backendai.portal.loops.group_pass import schedule
from backendai.portal.loops.loops import run_pipelines
from backendai.scheduler.runs.snapshot import UNPLACED_PER_OWNER, UNPLACED_PER_STEP
from tests.cast import Cast
from tests.factories import make_agent, make_group
from tests.pipelines.world import ARRAY, end, index_of, launch, launch_text, pending, play, states, well

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("sequence", "first"), [("fifo", range(5)), ("lifo", range(15, 20))])
def test_elements_start_in_the_order_of_their_numbers(cast: Cast, sequence: str, first: range) -> None:
    group = make_group(sequence=sequence)
    run = launch(cast.alice, **ARRAY, name="sweep", array=20)
    now = timezone.now()
    run_pipelines(now)
    make_agent(cpu=5)
    schedule(group, now)
    placed = ComputeSession.objects.filter(run_id=run.pk, status=SessionStatus.SCHEDULED)
    assert sorted(map(index_of, placed)) == list(first)


def test_each_element_gets_a_session_with_its_number(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, name="sweep", array=3, environ={"LR": "0.1"})
    assert run_pipelines(timezone.now()) == 1
    sessions = pending(run)
    assert [session.name for session in sessions] == ["sweep-0", "sweep-1", "sweep-2"]
    own = sessions[1].environ
    assert {name: own[name] for name in own if "ARRAY" in name} == {
        "BACKENDAI_ARRAY_INDEX": "1",
        "BACKENDAI_ARRAY_COUNT": "3",
        "BACKENDAI_ARRAY_ATTEMPT": "1",
    }
    assert own["LR"] == "0.1" and sessions[1].startup_command == "python work.py"
    assert {session.kernels.count() for session in sessions} == {1}
    assert run_pipelines(timezone.now()) == 0, "a second pass launches nothing twice"


@pytest.mark.parametrize("size", [70, pytest.param(1000, marks=pytest.mark.long)])
def test_an_array_with_three_failures_is_repaired_by_one_button(cast: Cast, size: int) -> None:
    run = launch(cast.alice, **ARRAY, name="large", array=size)
    failing = {7, size // 2, size - 1}
    play(run, lambda session: "task-failed" if index_of(session) in failing else "task-finished")
    assert (run.status, states(run)) == (Status.FAILED, {"SUCCEEDED": size - 3, "FAILED": 3})
    assert retry_failed(run, cast.alice, now=timezone.now()) == 3
    play(run)
    assert (run.status, states(run)) == (Status.SUCCEEDED, {"SUCCEEDED": size})
    assert Attempt.objects.count() == size + 3
    assert set(Task.objects.filter(attempt=2).values_list("index", flat=True)) == failing
    assert SessionNotice.objects.count() == 0, "the owner is told of the run, not of its sessions"


def test_only_so_many_wait_for_an_agent(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=200)
    run_pipelines(timezone.now())
    assert len(pending(run)) == UNPLACED_PER_STEP == 64  # as the user guide says
    end(pending(run)[:10], well, timezone.now())
    run_pipelines(timezone.now())
    assert len(pending(run)) == UNPLACED_PER_STEP
    others = [launch(cast.alice, **ARRAY, array=200) for _ in range(5)]
    run_pipelines(timezone.now())
    assert sum(len(pending(one)) for one in [run, *others]) == UNPLACED_PER_OWNER == 256


def test_at_once_holds_back_what_would_be_too_much(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=10, at_once=3)
    run_pipelines(timezone.now())
    assert [index_of(session) for session in pending(run)] == [0, 1, 2]


def test_cancelling_ends_what_runs_and_nothing_else_is_launched(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=10, at_once=2)
    run_pipelines(timezone.now())
    assert cancel_run(run, cast.alice, now=timezone.now()) == 2
    run = play(run)
    assert (run.status, states(run)) == (Status.CANCELLED, {"CANCELLED": 10})
    assert run.ended_at is not None
    assert ComputeSession.objects.filter(run_id=run.pk).count() == 2
    with pytest.raises(Conflict):
        cancel_run(run, cast.alice, now=timezone.now())


def test_a_cancelled_run_goes_on_where_it_stopped(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=5)
    run_pipelines(timezone.now())
    end(pending(run)[:2], well, timezone.now())
    run_pipelines(timezone.now())
    cancel_run(run, cast.alice, now=timezone.now())
    play(run)
    assert states(run) == {"SUCCEEDED": 2, "CANCELLED": 3}
    assert retry_failed(run, cast.alice, now=timezone.now()) == 3
    assert (play(run).status, states(run)) == (Status.SUCCEEDED, {"SUCCEEDED": 5})


def test_a_pause_releases_nothing_and_settles_what_ends(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=4, at_once=1)
    run_pipelines(timezone.now())
    pause_run(run, cast.alice)
    run = play(run)
    assert (run.status, states(run)) == (Status.PAUSED, {"SUCCEEDED": 1, "WAITING": 3})
    resume_run(run, cast.alice)
    assert play(run).status == Status.SUCCEEDED


def test_a_try_waits_for_its_pause_and_asks_for_more(cast: Cast) -> None:
    now = timezone.now()
    retry = {"times": 2, "reasons": ["out-of-memory"], "wait": "30s", "more": {"mem": 2}}
    run = launch(cast.alice, now, **ARRAY, array=1, retry=retry)
    run_pipelines(now)
    end(pending(run), lambda _: "out-of-memory", now)
    run_pipelines(now)
    assert states(run) == {"WAITING": 1}
    run_pipelines(now + timedelta(seconds=29))
    assert not pending(run)
    run_pipelines(now + timedelta(seconds=31))
    (session,) = pending(run)
    assert session.slots == {"cpu": "1", "mem": "1073741824"} and session.environ["BACKENDAI_ARRAY_ATTEMPT"] == "2"
    end([session], lambda _: "task-failed", now)  # not one of its reasons
    run_pipelines(now + timedelta(seconds=60))
    assert states(run) == {"FAILED": 1}


def test_a_name_that_is_taken_gets_letters_behind_it(cast: Cast) -> None:
    first = launch(cast.alice, **ARRAY, name="same", array=2)
    second = launch(cast.alice, **ARRAY, name="same", array=2)
    run_pipelines(timezone.now())
    assert [one.name for one in pending(first)] == ["same-0", "same-1"]
    assert all(one.name.startswith("same-") and len(one.name) == 11 for one in pending(second))


def test_an_image_that_is_switched_off_is_said_at_the_step(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=4, at_once=1)
    run_pipelines(timezone.now())
    from_image = pending(run)[0].image
    type(from_image).objects.filter(pk=from_image.pk).update(is_enabled=False)
    play(run)
    step = run.steps.get()
    assert run.status == Status.RUNNING and "python" in step.message
    assert run_pipelines(timezone.now()) == 0, "a refusal that stands wakes nobody"
    type(from_image).objects.filter(pk=from_image.pk).update(is_enabled=True)
    assert play(run).status == Status.SUCCEEDED
    step.refresh_from_db()
    assert step.message == ""


def test_a_deactivated_owner_gets_no_more_sessions(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=4, at_once=1)
    type(cast.alice).objects.filter(pk=cast.alice.pk).update(is_active=False)
    run_pipelines(timezone.now())
    assert not pending(run) and "alice@example.com" in run.steps.get().message


def test_the_same_key_makes_one_run(cast: Cast) -> None:
    launch(cast.alice, **ARRAY, array=2)
    wish, now = RunSpec(document={**ARRAY, "array": 2}), timezone.now()
    first, is_new = create_run(cast.alice, wish, idempotency_key="k", now=now)
    again, is_new_again = create_run(cast.alice, wish, idempotency_key="k", now=now)
    assert (first, is_new, is_new_again) == (again, True, False)
    with pytest.raises(Conflict):
        create_run(cast.alice, RunSpec(document={**ARRAY, "array": 3}), idempotency_key="k", now=now)


def test_what_a_launch_refuses_writes_nothing(cast: Cast) -> None:
    launch(cast.alice, **ARRAY, array=1)
    for document, field in (
        ({**ARRAY, "array": 1, "image": "no-such-image"}, "image"),
        ({**ARRAY, "array": 1, "project": "unknown"}, "project"),
        ({**ARRAY, "array": 20_000}, "array"),
        ({**ARRAY, "array": 1, "resources": {"cpu": 1, "mem": "lots"}}, "resources.mem"),
    ):
        with pytest.raises(UserError) as caught:
            create_run(cast.alice, RunSpec(document=document), now=timezone.now())
        assert caught.value.field == field, caught.value
    assert Run.objects.count() == 1


SECRET_RUN = """\
# A comment.
params: {token: {type: secret}}
steps:
  one:
    image: python
    resources: {cpu: 1, mem: 512m}
    startup_command: "true"
    environ: {HF_TOKEN: "${{ params.token }}", LR: "0.1"%s}
"""


def test_a_document_is_shown_again_without_values_of_secrets(cast: Cast) -> None:
    plain = SECRET_RUN % ""
    run = launch_text(cast.alice, plain, token="s3cret")
    assert run.text == plain and "s3cret" not in str(run.parameters), "a gap holds no secret"
    run = launch_text(cast.alice, SECRET_RUN % ", DB: postgres://me:hunter2@db/x, API_KEY: abc123", token="s3cret")
    assert not {"hunter2", "abc123", "s3cret"} & set(re.split(r"\W+", run.text))
    assert "LR:" in run.text and "${{ params.token }}" in run.text
    run_pipelines(timezone.now())
    (session,) = pending(run)
    assert (session.environ["API_KEY"], session.environ["HF_TOKEN"]) == ("abc123", "s3cret")


def test_a_plain_batch_session_tells_its_owner_that_it_ended_well(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=1)
    run_pipelines(timezone.now())
    ComputeSession.objects.filter(run_id=run.pk).update(run_id=None)
    (session,) = ComputeSession.objects.all()
    end([session], well, timezone.now())
    assert session.notices.filter(kind=NoticeKind.FINISHED).count() == 1
    assert ComputeSession.objects.get().status == SessionStatus.TERMINATED


@pytest.mark.parametrize("rule", [{"on_failure": "drain"}, {"on_failure": "stop"}, {"give_up_after": 1}, {"probe": 2}])
def test_one_element_is_retried_while_another_stays_failed(cast: Cast, rule: dict[str, object]) -> None:
    run = play(launch(cast.alice, **ARRAY, array=4, at_once=2, **rule), lambda _: "task-failed")
    assert run.status == Status.FAILED and states(run)["FAILED"] >= 1
    failed = list(Task.objects.filter(state="FAILED").order_by("index").values_list("index", flat=True))
    assert retry_failed(run, cast.alice, step="array", indexes=[failed[0]], now=timezone.now()) == 1
    run = play(run)
    assert Task.objects.get(index=failed[0]).state == "SUCCEEDED"
    assert Task.objects.filter(attempt=2).count() == 1, "the others were not asked for"
    retry_failed(run, cast.alice, now=timezone.now())
    assert (play(run).status, states(run)) == (Status.SUCCEEDED, {"SUCCEEDED": 4})
