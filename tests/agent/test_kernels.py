"""One kernel's way: start, stop, end, and what happens when a step is lost, doubled or crossed."""

from __future__ import annotations

import time
from threading import Event
from uuid import uuid4

import pytest

from backendai.agent.backends.base import BackendError, Ended, KernelEvent, LimitExceeded, StartFailed
from backendai.agent.loop.runtime import Watcher
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import KernelReport, KernelState
from tests.agent.memory_backend import Entry
from tests.agent.node import Node
from tests.agent.portal import make_spec
from tests.patience import until


def start(node: Node, **over: object):
    spec = node.portal.want(make_spec(**over))
    node.kernels.start_soon(spec.kernel_id, spec.generation)
    node.settle()
    return spec.kernel_id


def test_it_starts_on_a_hint_with_one_fetch_and_one_report() -> None:
    node = Node()
    kernel_id = start(node)
    assert node.portal.states(kernel_id) == ["RUNNING"]
    assert node.portal.fetches == [kernel_id]
    assert set(node.portal.reports[0].timings) == {"queue", "fetch", "start"}
    assert node.roster.generation(kernel_id) == 1


def test_it_tells_which_folders_a_kernel_started_without() -> None:
    node = Node()
    node.backend.left_out = lambda kernel_id: f"Not mounted on this agent: .cache of {kernel_id}."  # type: ignore[method-assign]
    kernel_id = start(node)
    (report,) = node.portal.reports
    assert (report.state, report.message) == ("RUNNING", f"Not mounted on this agent: .cache of {kernel_id}.")


def test_it_starts_once_when_hint_and_sync_come_together() -> None:
    node = Node()
    node.backend.start_gate.clear()
    spec = node.portal.want(make_spec())
    assert node.kernels.start_soon(spec.kernel_id, 1)
    assert not node.kernels.start_soon(spec.kernel_id, 1)
    node.sync(settle=False)
    node.backend.start_gate.set()
    node.settle()
    assert node.backend.said.count("start") == 1
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_starts_no_more_kernels_at_once_than_its_lane_is_wide() -> None:
    node = Node()
    node.backend.start_gate.clear()
    specs = [node.portal.want(make_spec()) for _ in range(12)]
    for spec in specs:
        node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: node.backend.starting == 4)
    node.backend.start_gate.set()
    node.settle()
    assert node.backend.most_starting == 4
    assert all(node.portal.status[spec.kernel_id] == "RUNNING" for spec in specs)


def test_it_ends_kernels_while_all_starts_hang() -> None:
    node = Node()
    running = start(node)
    node.backend.start_gate.clear()
    for _ in range(6):
        node.kernels.start_soon(node.portal.want(make_spec()).kernel_id, 1)
    node.portal.terminate(running)
    node.kernels.stop_soon(running, 1)
    until(lambda: node.portal.status[running] == "TERMINATED")
    node.backend.start_gate.set()
    node.settle()


def test_it_starts_the_next_generation_at_once_after_the_end_that_is_in_progress() -> None:
    node = Node()
    kernel_id = start(node)
    node.portal.terminate(kernel_id)

    def resume(report: KernelReport) -> None:
        if report.state == KernelState.TERMINATED:
            again = node.portal.want(make_spec(kernel_id=kernel_id, generation=2))
            assert node.kernels.start_soon(again.kernel_id, 2)

    node.portal.before_report = resume
    node.kernels.stop_soon(kernel_id, 1)
    node.settle()
    assert node.portal.states(kernel_id)[-1] == "RUNNING"
    assert node.roster.generation(kernel_id) == 2


def test_it_adopts_what_an_agent_started_that_died_before_it_could_report() -> None:
    node = Node()

    def die(report: KernelReport) -> None:
        raise SystemError("killed")

    node.portal.before_report = die
    kernel_id = start(node)
    assert node.portal.states(kernel_id) == []
    node.portal.before_report = lambda report: None

    successor = Node(node.portal, node.backend)
    successor.sync()
    assert node.backend.said.count("create") == 1
    assert node.portal.states(kernel_id) == ["RUNNING"]


def test_it_removes_a_kernel_whose_report_is_refused_because_nobody_wants_it() -> None:
    node = Node()
    node.portal.before_report = lambda report: node.portal.terminate(report.kernel_id)
    kernel_id = start(node)
    assert node.portal.states(kernel_id) == ["RUNNING"]
    assert node.backend.entries == {}
    assert node.roster.ids() == set()


def test_it_keeps_a_kernel_when_the_report_that_changed_nothing_was_only_a_repetition() -> None:
    node = Node()
    node.portal.forget_applied = True
    kernel_id = start(node)
    assert node.backend.entries[kernel_id].ended is None


def test_it_ignores_a_hint_for_a_kernel_of_another_agent() -> None:
    node = Node()
    start(node, agent="other")
    assert node.backend.entries == {}


def test_it_pulls_a_missing_image_and_says_how_far_it_is() -> None:
    node = Node()
    node.backend.pull_gate.clear()
    node.portal.access = RegistryAccess(username="robot", password="correct horse")
    spec = node.portal.want(make_spec(image="big"))
    node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: any(report.progress == 0.5 for report in node.portal.reports))
    far = next(report for report in node.portal.reports if report.progress)
    assert (far.fetched_bytes, far.image_bytes) == (2**30, 2**31)
    node.backend.pull_gate.set()
    node.settle()
    states = node.portal.states(spec.kernel_id)
    assert states[0] == "PULLING" and states[-2:] == ["CREATING", "RUNNING"]
    assert states.count("PULLING") < 5  # at most one a second, though the backend tells it every 10 ms
    assert "pull" in node.portal.reports[-1].timings
    assert node.backend.accounts == ["robot"]


def test_it_starts_other_kernels_while_one_pulls() -> None:
    node = Node()
    node.backend.pull_gate.clear()
    for _ in range(6):
        node.kernels.start_soon(node.portal.want(make_spec(image="big")).kernel_id, 1)
    quick = node.portal.want(make_spec())
    node.kernels.start_soon(quick.kernel_id, 1)
    until(lambda: node.portal.status[quick.kernel_id] == "RUNNING")
    node.backend.pull_gate.set()
    node.settle()


def test_it_gives_up_a_pull_that_was_ordered_to_stop() -> None:
    node = Node()
    node.backend.pull_gate.clear()
    spec = node.portal.want(make_spec(image="big"))
    node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: "pull" in node.backend.said)
    node.portal.terminate(spec.kernel_id)
    node.kernels.stop_soon(spec.kernel_id, 1)
    node.settle()
    assert node.portal.states(spec.kernel_id)[-1] == "TERMINATED"
    assert "create" not in node.backend.said


def test_it_ends_at_once_while_a_registry_says_nothing() -> None:
    node, silence = Node(), Event()
    node.backend.pull = lambda *args, **options: silence.wait(30)
    spec = node.portal.want(make_spec(image="big"))
    node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: (holder := node.lanes.holder(spec.kernel_id)) is not None and holder.is_pulling)
    node.portal.terminate(spec.kernel_id)
    node.kernels.stop_soon(spec.kernel_id, 1)
    assert node.portal.states(spec.kernel_id)[-1] == "TERMINATED"
    silence.set()
    node.settle()
    assert node.portal.states(spec.kernel_id) == ["PULLING", "TERMINATED"] and "create" not in node.backend.said


def test_it_says_which_image_does_not_exist() -> None:
    node = Node()
    kernel_id = start(node, image="nowhere")
    last = node.portal.reports[-1]
    assert (last.kernel_id, last.state, last.reason) == (kernel_id, KernelState.TERMINATED, "image-not-found")
    assert "nowhere" in last.message


def test_it_says_why_the_engine_could_not_start_it() -> None:
    node = Node()
    node.backend.has_image = lambda reference: True
    node.backend.failure = StartFailed("no such device", code="no-device")
    kernel_id = start(node)
    assert [(report.kernel_id, report.reason) for report in node.portal.reports] == [(kernel_id, "no-device")]


def test_it_gives_no_verdict_when_the_engine_is_down() -> None:
    node = Node()
    node.backend.down = True
    kernel_id = start(node)
    node.kernels.stop_soon(kernel_id, 1)
    node.kernels.look_soon(kernel_id, 1)
    node.settle()
    assert node.portal.reports == []
    node.backend.down = False
    node.sync()
    assert node.portal.states(kernel_id) == ["RUNNING"]


def test_it_leaves_a_newer_generation_alone() -> None:
    node = Node()
    kernel_id = start(node, generation=3)
    node.kernels.stop_soon(kernel_id, 2)
    node.kernels.discard_soon(kernel_id, 2)
    node.settle()
    assert node.backend.entries[kernel_id].ended is None


def test_it_uploads_the_log_then_reports_then_removes() -> None:
    node = Node()
    kernel_id = start(node)
    node.portal.said.clear()
    node.backend.exit(kernel_id, 3)
    node.kernels.look_soon(kernel_id, 1)
    node.settle()
    assert node.portal.said == ["log", "report TERMINATED", "remove"]
    assert node.portal.logs[kernel_id] == (b"hello\n", False)
    assert (node.portal.reports[-1].exit_code, node.portal.reports[-1].reason) == (3, "exited")


def test_it_uploads_only_the_end_of_a_long_log() -> None:
    node = Node()
    kernel_id = start(node)
    node.backend.entries[kernel_id].log = b"x" * (5 * 2**20) + b"the end"
    node.backend.exit(kernel_id)
    node.kernels.look_soon(kernel_id, 1)
    node.settle()
    log, truncated = node.portal.logs[kernel_id]
    assert len(log) == 4 * 2**20 and log.endswith(b"the end") and truncated


def test_it_keeps_an_ended_kernel_until_the_portal_took_the_report() -> None:
    node = Node()
    kernel_id = start(node)
    node.backend.exit(kernel_id)
    node.portal.down = True
    node.kernels.look_soon(kernel_id, 1)
    node.settle()
    assert kernel_id in node.backend.entries
    node.portal.down = False
    node.sync()
    assert kernel_id not in node.backend.entries
    assert node.portal.status[kernel_id] == "TERMINATED"


@pytest.mark.parametrize("order", ["look", "stop"])
def test_a_log_that_can_never_be_kept_keeps_no_kernel_from_its_end(
    order: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    kernel_id = start(node)

    def fails(*_: object, **__: object) -> None:
        raise ValueError("a log that no message can hold")

    monkeypatch.setattr(node.portal, "put_log", fails)
    if order == "look":
        node.backend.exit(kernel_id, 3)
        node.kernels.look_soon(kernel_id, 1)
    else:
        node.portal.terminate(kernel_id)
        node.kernels.stop_soon(kernel_id, 1)
    node.settle()
    assert node.portal.status[kernel_id] == "TERMINATED"
    assert kernel_id not in node.backend.entries
    assert [one.levelname for one in caplog.records if "its log cannot be kept" in one.message] == ["ERROR"]
    caplog.clear()


def test_it_stops_on_order_and_says_so() -> None:
    node = Node()
    kernel_id = start(node)
    node.portal.terminate(kernel_id)
    node.kernels.stop_soon(kernel_id, 1)
    node.settle()
    assert node.portal.said[-4:] == ["stop", "log", "report TERMINATED", "remove"]
    assert node.portal.reports[-1].reason == ""


def test_it_confirms_a_stop_of_what_is_gone_already() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.portal.terminate(spec.kernel_id)
    node.kernels.stop_soon(spec.kernel_id, 1)
    node.settle()
    assert node.portal.states(spec.kernel_id) == ["TERMINATED"]


def test_it_stops_a_kernel_whose_stop_overtook_its_start() -> None:
    node = Node()
    node.backend.start_gate.clear()
    spec = node.portal.want(make_spec())
    node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: node.backend.starting == 1)
    node.portal.terminate(spec.kernel_id)
    node.kernels.stop_soon(spec.kernel_id, 1)
    node.backend.start_gate.set()
    node.settle()
    assert node.backend.entries == {}
    assert node.portal.status[spec.kernel_id] == "TERMINATED"


def start_late(node: Node):
    """Return a spec whose start hangs in the engine for longer than it may."""
    node.backend.start_gate.clear()
    spec = node.portal.want(make_spec(create_timeout=0.01))
    node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: node.backend.starting == 1)
    time.sleep(0.02)  # the deadline itself
    node.kernels.give_up_overdue()
    node.kernels.give_up_overdue()
    return spec


def test_it_says_nothing_of_a_start_that_takes_too_long_before_the_engine_has_answered() -> None:
    node = Node()
    spec = start_late(node)
    node.sync(settle=False)
    assert node.portal.reports == []  # an end would free its devices, while it may still come up
    node.backend.start_gate.set()
    node.settle()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]
    assert node.backend.said.count("create") == 1


def test_it_removes_what_comes_up_after_the_portal_has_given_up_and_confirms_its_end_only_then() -> None:
    node = Node()
    spec = start_late(node)
    node.portal.terminate(spec.kernel_id)
    node.sync(settle=False)
    assert node.portal.reports == []
    node.backend.start_gate.set()
    node.settle()
    assert node.backend.entries == {}
    assert node.portal.status[spec.kernel_id] == "TERMINATED"
    assert node.portal.said.index("remove") < node.portal.said.index("report TERMINATED")


def test_it_gives_no_verdict_on_a_late_start_that_the_engine_left_without_an_answer() -> None:
    node = Node()
    spec = start_late(node)
    node.backend.down = True
    node.backend.start_gate.set()
    node.settle()
    assert node.portal.reports == []
    node.backend.down = False
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_sweeps_with_everything_that_lives_or_is_being_made() -> None:
    node = Node()
    running = start(node)
    node.backend.start_gate.clear()
    coming = node.portal.want(make_spec())
    node.kernels.start_soon(coming.kernel_id, 1)
    node.kernels.sweep()
    assert node.backend.swept == [{running, coming.kernel_id}]
    node.backend.start_gate.set()
    node.settle()


def test_it_learns_at_once_from_the_watcher_that_a_kernel_ended() -> None:
    node = Node()
    kernel_id = start(node)
    pokes: list[int] = []
    watcher = Watcher(node.backend, node.kernels, node.roster, poke=lambda: pokes.append(1))
    watcher.start()
    node.backend.exit(kernel_id, 1)
    node.backend.events.put(KernelEvent(kernel_id))
    node.backend.events.put(KernelEvent(uuid4()))
    until(lambda: node.portal.status[kernel_id] == "TERMINATED")
    node.backend.events.put(None)
    until(lambda: bool(pokes))
    watcher.stop()
    node.backend.events.put(None)


def test_it_notices_an_end_that_came_while_the_start_was_still_being_reported() -> None:
    node = Node()

    def end_at_once(report: KernelReport) -> None:
        if report.state == KernelState.RUNNING:
            node.backend.entries[report.kernel_id].ended = Ended(1, "exited", "quick")
            node.kernels.look_soon(report.kernel_id, -1)

    node.portal.before_report = end_at_once
    kernel_id = start(node)
    assert node.portal.states(kernel_id) == ["RUNNING", "TERMINATED"]
    assert node.backend.entries == {}


def test_it_begins_nothing_while_draining() -> None:
    node = Node()
    node.kernels.drain()
    start(node)
    assert node.backend.said == []


def test_it_reports_the_reason_of_a_pull_that_failed_for_good() -> None:
    node = Node()

    def pull(reference: str, *, timeout: float, progress: object, access: object) -> None:
        raise BackendError("too slow", code="pull-timeout")

    node.backend.pull = pull
    start(node, image="big")
    assert node.portal.reports[-1].reason == "pull-timeout"


def test_it_lets_no_start_make_anything_while_a_sweep_decides_what_belongs_to_nobody() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    made_during_sweep: list[str] = []

    def sweep(live: set[object]) -> None:
        node.kernels.start_soon(spec.kernel_id, 1)
        until(lambda: node.portal.fetches == [spec.kernel_id])
        time.sleep(0.05)  # long enough for a start that does not wait
        made_during_sweep.extend(node.backend.said)

    node.backend.sweep = sweep
    node.kernels.sweep()
    node.settle()
    assert made_during_sweep == []
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_keeps_an_order_to_stop_that_waits_when_something_less_urgent_comes() -> None:
    node = Node()
    node.backend.start_gate.clear()
    spec = node.portal.want(make_spec())
    node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: node.backend.starting == 1)
    node.kernels.stop_soon(spec.kernel_id, 1)
    node.kernels.look_soon(spec.kernel_id, 1)
    node.backend.start_gate.set()
    node.settle()
    assert "stop" in node.backend.said and node.backend.entries == {}


@pytest.mark.parametrize("reason", ["scratch-full", "layer-full"])
def test_it_ends_a_kernel_that_holds_too_much_and_says_by_how_much(reason: str) -> None:
    node = Node()
    kernel_id = start(node)
    message = "Its home folder holds 12 GiB; it may hold 10 GiB."
    node.backend.overfull = lambda: [LimitExceeded(kernel_id, message, reason)]
    node.kernels.end_overfull()
    node.settle()
    last = node.portal.reports[-1]
    assert (last.state, last.reason, last.message) == (KernelState.TERMINATED, reason, message)
    assert kernel_id not in node.backend.entries


def test_it_ends_a_kernel_that_was_made_but_never_begun() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.backend.entries[spec.kernel_id] = Entry(1)
    node.backend.stop = lambda kernel_id, *, grace: None  # the engine has nothing to stop
    node.portal.terminate(spec.kernel_id)
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["TERMINATED"]
    assert spec.kernel_id not in node.backend.entries
