"""What would start a waiting session: every suggestion, taken up, must work."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.explaining.suggest import suggest
from backendai.scheduler.snapshot import DeviceView, Holder, LimitView
from tests.scheduler.worlds import a_session, a_snapshot, an_agent, random_agents, random_snapshots

NOTHING = Slots()


def starts(snapshot, session) -> bool:
    return any(placement.session_id == session.id for placement in decide(snapshot).placements)


def instead(snapshot, old, new):
    return replace(snapshot, pending=tuple(new if each.id == old.id else each for each in snapshot.pending))


def smaller(session, amounts):
    return session._replace(kernels=tuple(kernel._replace(slots=amounts) for kernel in session.kernels))


def test_it_gives_up_as_little_as_it_can():
    session = a_session(asks={"cpu": 4, "cuda.device": 4})
    agents = [an_agent("gpu-01", used={"cuda.device": 1}), an_agent("gpu-02", used={"cuda.device": 3, "cpu": 6})]
    (found,) = suggest(a_snapshot(agents, [session]), session, [], least=NOTHING)
    assert found.resources == Slots.parse({"cpu": 4, "cuda.device": 3})
    assert found.message == "With 3 GPUs instead of 4 it starts now on gpu-01."


def test_it_says_nothing_about_a_session_that_starts_anyway():
    session = a_session()
    assert suggest(a_snapshot([an_agent()], [session]), session, [], least=NOTHING) == []


def test_it_does_not_go_below_what_the_image_needs():
    session = a_session(asks={"cpu": 4})
    snapshot = a_snapshot([an_agent(used={"cpu": 7})], [session])
    assert suggest(snapshot, session, [], least=Slots.parse({"cpu": 2})) == []
    assert suggest(snapshot, session, [], least=Slots.parse({"cpu": 1}))[0].resources == Slots.parse({"cpu": 1})


def test_it_counts_what_those_ahead_take_first():
    first, second = a_session("first", {"cpu": 5}, age=2), a_session("second", {"cpu": 5}, age=1)
    (found,) = suggest(a_snapshot([an_agent()], [first, second]), second, [], least=NOTHING)
    assert found.resources == Slots.parse({"cpu": 3})


def test_a_smaller_session_does_not_pass_a_strict_queue():
    first, second = a_session("first", {"cpu": 6}, age=2), a_session("second", {"cpu": 6}, age=1)
    snapshot = a_snapshot([an_agent(used={"cpu": 4})], [first, second])
    assert suggest(snapshot, second, [], least=NOTHING) == []


def test_it_names_another_group_that_has_room():
    session = a_session(asks={"cpu": 4})
    full, other = a_snapshot([an_agent(used={"cpu": 8})], [session]), a_snapshot([an_agent("big-01")], [])
    (found,) = suggest(full, session, [replace(other, group="lab")], least=NOTHING)
    assert (found.group, found.resources, found.agents) == ("lab", None, ("big-01",))


def test_it_keeps_to_the_limits_of_the_holder():
    limit = LimitView("user", "alice", Slots.parse({"cpu": 4}), used=Slots.parse({"cpu": 1}))
    session = a_session(asks={"cpu": 6}, holder=Holder(user="user:a"))
    snapshot = a_snapshot([an_agent()], [session], limits={"user:a": limit})
    (found,) = suggest(snapshot, session, [], least=NOTHING)
    assert found.resources == Slots.parse({"cpu": 3})


def test_a_fraction_that_would_be_split_is_cut_to_the_largest_free_device():
    devices = (DeviceView("a", "cuda.shares", 1000, 400), DeviceView("b", "cuda.shares", 1000, 500))
    agent = an_agent(has={"cpu": 8, "cuda.shares": 2}, used={"cuda.shares": "0.9"}, devices=devices)
    session = a_session(asks={"cpu": 1, "cuda.shares": "0.8"})
    snapshot = a_snapshot([agent], [session], allow_fragmentation=False)
    (found,) = suggest(snapshot, session, [], least=NOTHING)
    assert found.resources == Slots.parse({"cpu": 1, "cuda.shares": "0.6"})


@settings(deadline=None)
@given(random_snapshots(), random_agents(), st.data())
def test_a_suggestion_that_is_taken_up_starts_the_session(snapshot, other_agents, data):
    waiting = [session for session in snapshot.pending if not starts(snapshot, session)]
    if not waiting:
        return
    session = data.draw(st.sampled_from(waiting))
    other = a_snapshot(other_agents, [])
    for found in suggest(snapshot, session, [replace(other, group="other")], least=NOTHING):
        if found.resources is None:
            moved = session._replace(attempts=0, avoid_agents=frozenset(), image_build=None)
            assert starts(replace(other, pending=(moved,)), moved)
        else:
            changed = smaller(session, found.resources)
            assert starts(instead(snapshot, session, changed), changed)
            assert found.resources.fits(session.kernels[0].slots)
