"""The sync loop: what it says, and how carefully it believes what it hears."""

from __future__ import annotations

import logging
from unittest import mock

import pytest

from backendai.agent.backends.base import Ended
from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.wire.messages import SyncDown, SyncUp
from tests.agent.memory_backend import Entry
from tests.agent.node import Node
from tests.agent.portal import make_spec
from tests.patience import until


def test_it_starts_what_waits_on_its_first_sync() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_does_not_run_a_batch_program_twice_on_an_answer_that_is_older_than_its_end() -> None:
    node = Node()
    spec = node.portal.want(make_spec(session_type="batch"))
    answer = node.portal.sync

    def answer_late(up: SyncUp) -> SyncDown:
        made = answer(up)
        node.kernels.start_soon(spec.kernel_id, 1)
        node.settle()
        node.backend.exit(spec.kernel_id)
        node.kernels.look_soon(spec.kernel_id, 1)
        node.settle()
        return made

    node.portal.sync = answer_late
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING", "TERMINATED"]
    assert node.backend.said.count("create") == 1


def test_it_leaves_later_starts_to_the_hint_until_the_second_sighting() -> None:
    node = Node()
    node.sync()
    spec = node.portal.want(make_spec())
    node.sync()
    assert node.portal.states(spec.kernel_id) == []
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_starts_at_the_first_sighting_when_no_hint_can_come() -> None:
    node = Node()
    node.connected.clear()
    node.sync()
    spec = node.portal.want(make_spec())
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_asks_the_portal_to_wait_only_when_no_hint_can_come() -> None:
    node = Node()
    node.sync()
    node.sync()
    node.connected.clear()
    node.sync()
    assert [up.wait for up in node.portal.syncs[:2]] == [0, 0]
    assert node.portal.syncs[2].wait > 0


def test_it_stops_what_should_end() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.sync()
    node.portal.terminate(spec.kernel_id)
    node.sync()
    assert node.portal.status[spec.kernel_id] == "TERMINATED"
    assert node.backend.entries == {}


def test_it_tells_the_end_of_a_kernel_that_ended_while_nobody_watched() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.sync()
    node.backend.exit(spec.kernel_id, 7)
    node.sync()
    assert (node.portal.reports[-1].exit_code, node.portal.reports[-1].reason) == (7, "exited")


def test_it_tells_the_end_instead_of_starting_a_kernel_that_ended_unreported() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.backend.entries[spec.kernel_id] = Entry(1, Ended(0, "exited", "done"))
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["TERMINATED"]


def test_it_removes_what_is_unwanted_in_two_answers_in_a_row() -> None:
    node = Node()
    stray = make_spec().kernel_id
    node.backend.entries[stray] = Entry(1)
    node.sync()
    assert stray in node.backend.entries
    node.sync()
    assert stray not in node.backend.entries
    assert node.portal.reports == []


def test_it_counts_no_strike_over_an_answer_that_failed_between() -> None:
    node = Node()
    stray = make_spec().kernel_id
    node.backend.entries[stray] = Entry(1)
    node.sync()
    node.backend.down = True
    node.sync()
    node.backend.down = False
    node.sync()
    assert stray in node.backend.entries
    node.sync()
    assert stray not in node.backend.entries


def test_it_does_not_take_a_kernel_for_unwanted_that_came_back_into_favour() -> None:
    node = Node()
    spec = make_spec()
    node.backend.entries[spec.kernel_id] = Entry(1)
    node.sync()
    node.portal.want(spec)
    node.portal.status[spec.kernel_id] = "RUNNING"
    node.sync()
    node.sync()
    assert spec.kernel_id in node.backend.entries


def test_it_reports_a_missing_container_at_the_second_look() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.sync()
    node.sync()
    del node.backend.entries[spec.kernel_id]
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING", "TERMINATED"]
    assert node.portal.reports[-1].reason == "container-missing"


def test_it_does_not_call_a_kernel_missing_that_is_worked_on() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.backend.start_gate.clear()
    node.sync(settle=False)
    node.portal.status[spec.kernel_id] = "RUNNING"
    for _ in range(4):
        node.sync(settle=False)
    assert node.portal.reports == []
    node.backend.start_gate.set()
    node.settle()


def test_it_stays_alive_to_the_portal_when_the_engine_is_down_and_concludes_nothing() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.sync()
    node.sync()
    node.backend.down = True
    for _ in range(3):
        node.sync()
    last = node.portal.syncs[-1]
    assert [one.kernel_id for one in last.kernels] == [spec.kernel_id]
    assert last.draining and [note.code for note in last.notes] == ["engine-unreachable"]
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]


def test_it_tells_its_images_once_and_again_after_a_pull() -> None:
    node = Node()
    node.sync()
    node.sync()
    assert [one.reference for one in node.portal.syncs[0].images or []] == ["python"]
    assert node.portal.syncs[1].images is None and node.portal.syncs[1].images_digest
    node.kernels.start_soon(node.portal.want(make_spec(image="big")).kernel_id, 1)
    node.settle()
    node.sync()
    assert [one.reference for one in node.portal.syncs[2].images or []] == ["big", "python"]


def test_it_tells_its_images_again_when_the_portal_asks() -> None:
    node = Node()
    node.sync()
    answer = node.portal.sync

    def ask(up):
        return answer(up).model_copy(update={"want_images": True})

    node.portal.sync = ask
    node.sync()
    node.sync()
    assert node.portal.syncs[1].images is None
    assert node.portal.syncs[2].images is not None


def test_it_touches_nothing_while_the_portal_is_away_and_goes_on_when_it_is_back() -> None:
    node = Node()
    spec = node.portal.want(make_spec())
    node.sync()
    node.portal.down = True
    node.loop.start()
    until(lambda: node.loop._failures >= 2)
    assert node.backend.entries[spec.kernel_id].ended is None
    node.portal.down = False
    seen = len(node.portal.syncs)
    until(lambda: len(node.portal.syncs) > seen)
    node.loop.stop(5)


def test_it_logs_a_refusal_once_until_something_changes(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    refusal = PortalRefused("The credential is revoked.", status=401)
    other = PortalRefused("The message cannot be read.", status=400)

    def refused_by(error: Exception) -> None:
        with mock.patch.object(node.portal, "sync", side_effect=error):
            failures = node.loop._failures
            until(lambda: (node.loop.poke(), node.loop._failures >= failures + 3)[1])

    with caplog.at_level(logging.INFO, "backendai.agent.loop.sync"):
        with mock.patch.object(node.portal, "sync", side_effect=refusal):
            node.loop.start()
            until(lambda: (node.loop.poke(), node.loop._failures >= 3)[1])
        refused_by(other)
        until(lambda: (node.loop.poke(), node.loop._failures == 0)[1])
        node.loop.stop(5)
    logged = [record.getMessage() for record in caplog.records if record.name == "backendai.agent.loop.sync"]
    about = [message for message in logged if "sync failed" in message or "takes syncs" in message]
    lead = "sync failed, kernels stay as they are: "
    assert about[-1] == "the portal takes syncs again"
    assert about.count(f"{lead}The credential is revoked.") == 1
    assert about.count(f"{lead}The message cannot be read.") == 1


def test_it_goes_on_after_an_error_nobody_expected() -> None:
    node = Node()
    node.backend.failure = RuntimeError("what is this")
    node.loop.start()
    until(lambda: node.loop._failures >= 1)
    node.backend.failure = None
    until(lambda: len(node.portal.syncs) >= 1)
    node.loop.stop(5)


def test_it_syncs_at_once_when_poked() -> None:
    node = Node()
    node.loop._own_interval = 3600
    node.loop.start()
    until(lambda: len(node.portal.syncs) == 1)
    node.loop.poke()
    until(lambda: len(node.portal.syncs) == 2)
    node.loop.stop(5)


def test_it_raises_what_the_portal_did_not_answer() -> None:
    node = Node()
    node.portal.down = True
    try:
        node.loop.sync_once()
    except PortalUnreachable:
        return
    raise AssertionError("a sync that failed must not look like one that worked")


def test_it_syncs_as_often_as_the_portal_says_unless_it_was_told() -> None:
    node = Node()
    node.sync()
    assert node.loop._interval == 0.05
    node.loop._own_interval = None
    node.sync()
    assert node.loop._interval == 5.0


@pytest.mark.parametrize(
    ("error", "longest"), [(PortalRefused("no", status=401), 300.0), (PortalUnreachable("no"), 10.0)]
)
def test_a_refused_node_asks_ever_more_rarely(error: Exception, longest: float) -> None:
    rests = _rests_after([error] * 12)
    assert longest / 2 <= rests[-1] <= longest
    assert max(rests) <= longest


def test_a_first_refusal_after_many_failures_is_followed_by_a_pause_of_seconds() -> None:
    rests = _rests_after([*[PortalUnreachable("no")] * 12, PortalRefused("no", status=401), PortalUnreachable("no")])
    assert max(rests) <= 10.0


def test_silence_between_refusals_does_not_shorten_the_pauses() -> None:
    rests = _rests_after([PortalRefused("no", status=401), PortalUnreachable("no")] * 12)
    assert min(rests[-2:]) >= 150.0


def _rests_after(errors: list[Exception]) -> list[float]:
    loop, rests = Node().loop, list[float]()
    loop._interval = 5.0

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == len(errors):
            loop._stopped.set()

    with mock.patch.object(loop, "sync_once", side_effect=errors), mock.patch.object(loop, "_poked") as poked:
        poked.wait.side_effect = rest
        loop._run()
    return rests
