"""Pipelines: edges, repaired dependants, the workspace, and control that dies in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.status.moves import StatusCause, move
from backendai.domain.compute.status import Phase
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.documents.graph import crossings, drawn
from backendai.domain.pipelines.explaining import why_waits
from backendai.domain.pipelines.models import Attempt, State, Status, Task
from backendai.domain.pipelines.reading import classes_of, read_runs
from backendai.domain.pipelines.services import acting, releasing
from backendai.domain.pipelines.services.acting import act
from backendai.domain.pipelines.services.changing import cancel_run, retry_failed
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import create_folder
from backendai.portal.loops.loops import run_pipelines
from tests.cast import Cast
from tests.pipelines.world import end, index_of, launch, launch_text, pending, play, states, well
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = pytest.mark.django_db
FLOW = """\
defaults: {image: python, resources: {cpu: 1, mem: 512m}}
steps:
  prepare: {startup_command: prepare}
  train:
    after: [prepare]
    matrix: {lr: [0.1, 0.01], seed: [1, 2]}
    startup_command: train "$PARAM_LR"
  check: {after: {train: each}, array: 4, startup_command: check}
  alarm: {after: {train: failure}, startup_command: alarm}
  report: {after: {check: any}, startup_command: report}
finally: {startup_command: tidy}
"""


def failing(*names: str) -> Any:
    return lambda session: "task-failed" if session.startup_command.split()[0] in names else "task-finished"


def test_steps_follow_their_edges(cast: Cast) -> None:
    run = launch_text(cast.alice, FLOW)
    run_pipelines(timezone.now())
    assert [one.startup_command for one in pending(run)] == ["prepare"]
    end(pending(run), well, timezone.now())
    run_pipelines(timezone.now())
    train = pending(run)
    assert [(one.environ["PARAM_LR"], one.environ["PARAM_SEED"]) for one in train] == [
        ("0.1", "1"), ("0.1", "2"), ("0.01", "1"), ("0.01", "2"),
    ]  # fmt: skip
    end(train[:1], well, timezone.now())
    for _ in range(2):
        run_pipelines(timezone.now())
    assert [index_of(one) for one in pending(run) if one.startup_command == "check"] == [0], "after its own element"
    assert play(run).status == Status.SUCCEEDED
    assert states(run, "alarm") == {"SKIPPED": 1} and states(run, "finally") == {"SUCCEEDED": 1}


def test_what_cannot_run_is_skipped_and_revived_by_a_repair(cast: Cast) -> None:
    run = play(launch_text(cast.alice, FLOW), failing("prepare"))
    assert run.status == Status.FAILED
    assert states(run, "train") == {"SKIPPED": 4} and states(run, "finally") == {"SUCCEEDED": 1}
    task = Task.objects.filter(step__run=run, step__name="train").select_related("step", "session").first()
    assert "prepare" in why_waits(run, task, timezone.now())[0].message
    assert retry_failed(run, cast.alice, now=timezone.now()) == 1
    assert play(run).status == Status.SUCCEEDED
    assert states(run, "check") == {"SUCCEEDED": 4}
    assert Attempt.objects.filter(task__step__name="finally").count() == 1, "a success is never repeated"


@pytest.mark.parametrize(("rule", "rest"), [("drain", "SUCCEEDED"), ("stop", "CANCELLED")])
def test_a_failure_may_end_the_rest(cast: Cast, rule: str, rest: str) -> None:
    text = (
        f"on_failure: {rule}\ndefaults: {{image: python, resources: {{cpu: 1, mem: 512m}}}}\n"
        "steps:\n  one: {startup_command: one}\n  two: {startup_command: two}\n"
        "  three: {after: {one: any}, startup_command: three}\n"
    )
    run = launch_text(cast.alice, text)
    run_pipelines(timezone.now())
    first, second = sorted(pending(run), key=lambda one: one.startup_command)
    end([first], failing("one"), timezone.now())
    run_pipelines(timezone.now())
    second.refresh_from_db()
    assert (second.status == "CANCELLED") == (rule == "stop")
    run_pipelines(timezone.now())
    assert run_pipelines(timezone.now()) == 0, "what has been stopped is not stopped again and again"
    play(run)
    assert states(run) == ({"FAILED": 1, "CANCELLED": 2} if rule == "stop" else {"FAILED": 1, rest: 1, "CANCELLED": 1})


def test_a_control_that_dies_before_the_release_repeats_nothing(cast: Cast, monkeypatch: Any) -> None:
    run = launch_text(cast.alice, FLOW)
    whole = releasing.launch_alike

    def dies(*args: Any, **kwargs: Any) -> Any:
        whole(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(releasing, "launch_alike", dies)
    with pytest.raises(KeyboardInterrupt):
        act(read_runs(timezone.now()))
    assert not ComputeSession.objects.exists() and states(run, "prepare") == {"WAITING": 1}
    monkeypatch.undo()
    assert play(run).status == Status.SUCCEEDED
    _no_session_without_task()


def test_two_controls_with_the_same_picture_release_once(cast: Cast) -> None:
    run = launch_text(cast.alice, FLOW)
    first, second = read_runs(timezone.now()), read_runs(timezone.now())
    assert (act(first), len(pending(run))) == (1, 1)
    act(second)
    assert len(pending(run)) == 1
    play(run)
    _no_session_without_task()


def test_a_cancel_between_decision_and_release_wins(cast: Cast) -> None:
    run = launch_text(cast.alice, FLOW)
    reading = read_runs(timezone.now())
    cancel_run(run, cast.alice, now=timezone.now())
    act(reading)
    assert not ComputeSession.objects.exists()
    assert play(run).status == Status.CANCELLED


def test_the_loop_is_woken_again_only_where_more_may_have_opened(cast: Cast, monkeypatch: Any) -> None:
    hints: list[str] = []
    monkeypatch.setattr(acting, "hint_runs", lambda: hints.append("hint"))
    step = {"image": "python", "startup_command": "x"}
    chain = launch(cast.alice, steps={"a": step, "b": {**step, "after": ["a"]}})
    assert play(chain).status == Status.SUCCEEDED and not hints, "a pass settles a step and releases the next"
    each = {"a": {**step, "array": 2}, "b": {**step, "array": 2, "after": {"a": "each"}}}
    assert play(launch(cast.alice, steps=each)).status == Status.SUCCEEDED and hints
    hints.clear()
    again = launch(cast.alice, steps={"a": {**step, "retry": 1}})
    play(again, lambda session: "task-finished" if session.name.endswith("-r2") else "task-failed")
    assert again.status == Status.SUCCEEDED and hints


def test_an_end_under_way_wakes_nobody(cast: Cast) -> None:
    text = (
        "on_failure: stop\ndefaults: {image: python, resources: {cpu: 1, mem: 512m}}\n"
        "steps:\n  one: {startup_command: one}\n  two: {startup_command: two}\n"
    )
    run = launch_text(cast.alice, text)
    run_pipelines(timezone.now())
    first, second = sorted(pending(run), key=lambda one: one.startup_command)
    for to in ("SCHEDULED", "RUNNING"):
        move([second.pk], SessionStatus(to), StatusCause(Phase.START))
    end([first], failing("one"), timezone.now())
    assert run_pipelines(timezone.now()) == 1
    ComputeSession.objects.filter(pk=second.pk).update(status="TERMINATING")  # its node has not confirmed it yet
    assert run_pipelines(timezone.now()) == 0


def test_a_pass_over_many_runs_has_few_queries(cast: Cast, django_assert_max_num_queries: Any) -> None:
    for _ in range(5):
        launch_text(cast.alice, FLOW)
    with django_assert_max_num_queries(7):
        read_runs(timezone.now())


def test_a_graph_has_every_step_in_a_layer_behind_what_it_waits_for() -> None:
    edges = {"a": [], "b": [], "c": ["b"], "d": ["a"], "e": ["c", "a"], "f": ["e", "d", "b"]}
    drawing = drawn(edges)
    x = {node.name: node.x for node in drawing.nodes}
    assert all(x[name] > x[on] for name, sources in edges.items() for on in sources)
    assert len({(node.x, node.y) for node in drawing.nodes}) == len(edges)
    crossed = drawn({"a": [], "b": [], "c": ["b"], "d": ["a"]})
    assert crossings(crossed) == 0


def _no_session_without_task() -> None:
    own = set(Attempt.objects.values_list("session", flat=True))
    assert own == set(ComputeSession.objects.values_list("pk", flat=True))
    done = Task.objects.filter(state=State.SUCCEEDED)
    assert all(task.attempts.filter(session__result="SUCCESS").count() == 1 for task in done)


def test_each_attempt_writes_to_a_directory_of_its_own_and_reads_what_succeeded(cast: Cast) -> None:
    with serving(FakeFileServer()) as files:
        make_host(files)
        create_folder(cast.alice, name="out", now=timezone.now())
        Folder.objects.update(status="READY")
        text = (
            "workspace: {folder: out, path: lab}\n"
            "defaults: {image: python, resources: {cpu: 1, mem: 512m}}\n"
            "steps:\n  one: {retry: 1, startup_command: one}\n  two: {startup_command: two, array: 2, after: [one]}\n"
            "  three: {startup_command: three, array: 2, after: {two: each, one: success}}\n"
            "  four: {startup_command: four, after: [two]}\n"
        )
        run = launch_text(cast.alice, text)
        run_pipelines(timezone.now())
        end(pending(run), failing("mkdir"), timezone.now())  # the first try fails
        run_pipelines(timezone.now())
        run_pipelines(timezone.now())
        root = f"/home/work/out/lab/run-{run.pk.hex[:12]}"
        (again,) = pending(run)
        assert again.environ["STEP_OUT"] == f"{root}/one/0/2" and again.startup_command.startswith('mkdir -p -- "$STEP')
        assert [mount.target for mount in again.mounts.all()] == ["/home/work/out"]
        play(run)
        assert run.status == Status.SUCCEEDED
        of = {one.environ["BACKENDAI_STEP"]: one for one in ComputeSession.objects.filter(run_id=run.pk)}
        assert of["three"].environ["IN_ONE"] == f"{root}/one/0/2"
        assert of["three"].environ["IN_TWO"] == f"{root}/two/{index_of(of['three'])}/1"
        assert (of["four"].environ["IN_TWO"], of["four"].environ["IN_TWO_DONE"]) == (f"{root}/two", "0/1 1/1")


def test_the_element_that_did_not_succeed_is_named_with_two_edges(cast: Cast) -> None:
    step = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "array": 2}
    steps = {
        "first": {**step, "startup_command": "first"},
        "second": {**step, "startup_command": "second"},
        "both": {**step, "startup_command": "both", "after": {"first": "each", "second": "each"}},
    }
    run = play(launch(cast.alice, steps=steps), failing("second"))
    causes = Task.objects.filter(step__name="both").values_list("state", "cause")
    assert set(causes) == {("SKIPPED", "second")} and run.status == Status.FAILED


@pytest.mark.parametrize(
    ("code", "exit_code", "classes"),
    [
        ("out-of-memory", 137, {"out-of-memory", "exit:137"}),
        (
            "out-of-memory",
            1,
            {"out-of-memory", "task-failed", "exit:1"},
        ),  # a worker was killed
        ("out-of-memory", None, {"out-of-memory"}),
        ("container-killed", 137, {"container-killed", "failed-to-start", "exit:137"}),
        ("task-failed", 3, {"task-failed", "exit:3"}),
    ],
)
def test_a_retry_rule_may_name_an_end_by_its_cause_and_by_its_exit_code(
    code: str, exit_code: int | None, classes: set[str]
) -> None:
    assert classes_of(code, {"exit_code": exit_code}) == classes
