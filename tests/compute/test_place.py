"""Placements are carried out whole, as far as they still fit, with a fixed number of statements."""

from __future__ import annotations

from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.status import Status
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session, make_sessions

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
GPU = {"cpu": "8", "mem": "17179869184", "cuda.shares": "2"}


def put(agent: Agent, *sessions: ComputeSession, shares: dict[str, int] | None = None, **over: Any) -> list[str]:
    """Place the sessions' kernels on the agent; returns the names of those that were placed."""
    assignments = []
    for session in sessions:
        kernels = [kernel.pk for kernel in session.kernels.all()]
        devices = {pk: {"cuda.shares": shares} for pk in kernels} if shares else {}
        assignments.append(Assignment(session.pk, dict.fromkeys(kernels, agent.pk), devices=devices, **over))
    placed = place_sessions(make_group().pk, assignments, now=timezone.now())
    return [session.name for session in sessions if session.pk in placed]


def gpu_agent() -> Agent:
    return make_agent(capacity=GPU, devices={"cuda.shares": ["GPU-0", "GPU-1"]})


def test_the_number_of_statements_does_not_grow_with_the_sessions(cast: Cast) -> None:
    agent = make_agent(cpu=100, mem="100g")
    counts = []
    for number in (2, 50):
        made = make_sessions(cast.alice, number)
        assignments = [Assignment(session.pk, {session.kernels.get().pk: agent.pk}) for session in made]
        with CaptureQueriesContext(connection) as captured:
            assert len(place_sessions(make_group().pk, assignments, now=timezone.now())) == number
        counts.append(len(captured))
    assert counts[0] == counts[1]
    assert Allocation.objects.count() == 104


def test_devices_are_written_on_the_kernel_as_the_node_reads_them(cast: Cast) -> None:
    session = make_session(cast.alice)
    put(gpu_agent(), session, shares={"GPU-0": 1000, "GPU-1": 250})
    assert session.kernels.get().devices == {"cuda.shares": {"GPU-0": "1", "GPU-1": "0.25"}}


def test_a_device_that_two_slots_offer_is_given_by_one_of_them(cast: Cast) -> None:
    both = {"cuda.device": ["GPU-0"], "cuda.shares": ["GPU-0"]}
    agent = make_agent(capacity={**GPU, "cuda.device": "1"}, devices=both)
    first, second = make_session(cast.alice), make_session(cast.alice)
    taken = []
    for session, shares in ((first, {"cuda.device": {"GPU-0": 1000}}), (second, {"cuda.shares": {"GPU-0": 500}})):
        pk = session.kernels.get().pk
        one = Assignment(session.pk, {pk: agent.pk}, devices={pk: shares})
        taken.append(bool(place_sessions(make_group().pk, [one], now=timezone.now())))
    assert taken == [True, False]


def test_a_plan_from_an_old_picture_cannot_give_a_device_twice(cast: Cast) -> None:
    agent = gpu_agent()
    first, second, third = (make_session(cast.alice, name=f"session-{letter}") for letter in "abc")
    assert put(agent, first, shares={"GPU-0": 600}) == ["session-a"]
    assert put(agent, second, third, shares={"GPU-0": 400}) == ["session-b"]
    assert put(agent, third, shares={"GPU-1": 1000}) == ["session-c"]


def test_a_device_that_the_agent_does_not_have_is_not_given(cast: Cast) -> None:
    assert put(gpu_agent(), make_session(cast.alice), shares={"GPU-9": 100}) == []


def test_devices_of_an_earlier_placement_do_not_stay(cast: Cast) -> None:
    session = make_session(cast.alice)
    Kernel.objects.filter(session=session).update(devices={"cuda.shares": {"GPU-0": "1"}})
    put(make_agent(), session)
    assert session.kernels.get().devices == {}


def test_an_agent_of_another_group_is_not_used(cast: Cast) -> None:
    elsewhere = make_agent(group=make_group("elsewhere"))
    assert put(elsewhere, make_session(cast.alice)) == []


@pytest.mark.parametrize("over", [{"status": "DRAINING"}, {"status": "LOST"}, {"schedulable": False}])
def test_an_agent_that_takes_nothing_now_is_not_used(cast: Cast, over: dict[str, Any]) -> None:
    assert put(make_agent(**over), make_session(cast.alice)) == []


@pytest.mark.parametrize("own", [True, False])
def test_an_agent_gets_no_more_kernels_than_its_own_limit_or_the_groups(cast: Cast, own: bool) -> None:
    make_group(max_kernels_per_agent=9 if own else 2)
    agent = make_agent(max_kernels=2 if own else None)
    make_running_session(cast.bob, agent)
    assert len(put(agent, *[make_session(cast.alice) for _ in range(3)])) == 1


def test_a_session_is_placed_whole_or_not_at_all(cast: Cast) -> None:
    agent = make_agent(cpu=4)
    pair = make_session(cast.alice, cluster_size=2, resources={"cpu": 2, "mem": "1g"})
    Kernel.objects.filter(session=pair, rank=1).update(slots={"cpu": "3", "mem": "1"})
    small = make_session(cast.bob, resources={"cpu": 4, "mem": "1g"})
    assert put(agent, pair, small) == [small.name]
    assert set(pair.kernels.values_list("status", "agent")) == {(Status.PENDING, None)}


def test_a_kernel_of_another_session_is_not_placed_with_it(cast: Cast) -> None:
    agent, mine, foreign = make_agent(), make_session(cast.alice), make_session(cast.bob)
    kernels = {foreign.kernels.get().pk: agent.pk}
    assert place_sessions(make_group().pk, [Assignment(mine.pk, kernels)], now=timezone.now()) == set()
    assert place_sessions(make_group().pk, [Assignment(mine.pk, {uuid4(): agent.pk})], now=timezone.now()) == set()


def test_the_history_has_the_steps_and_the_ledger_the_amounts(cast: Cast) -> None:
    agent, session = make_agent(), make_session(cast.alice, resources={"cpu": "1.5", "mem": "1g"})
    put(agent, session, steps='[{"step": "selection", "message": "héllo \\\\ \\"quoted\\""}]')
    record = SchedulingRecord.objects.get(session=session, to_status=Status.SCHEDULED)
    assert record.sub_steps == [{"step": "selection", "message": 'héllo \\ "quoted"'}]
    held = dict(Allocation.objects.filter(agent=agent).values_list("slot", "amount"))
    assert held == {"cpu": 1500, "mem": 2**30 * 1000}


def test_each_node_gets_one_message_for_all_that_it_is_to_start(
    cast: Cast, django_capture_on_commit_callbacks: Any
) -> None:
    busy, quiet = make_agent("busy"), make_agent("quiet")
    sessions = [make_session(cast.alice) for _ in range(3)]
    kernels = [session.kernels.get() for session in sessions]
    agents = [busy.pk, busy.pk, quiet.pk]
    assignments = [
        Assignment(session.pk, {kernel.pk: agent})
        for session, kernel, agent in zip(sessions, kernels, agents, strict=True)
    ]
    with mock.patch("backendai.base.wire.broker.hints.hint") as hint, django_capture_on_commit_callbacks(execute=True):
        place_sessions(make_group().pk, assignments, now=timezone.now())
    many = [[str(kernel.pk), 1] for kernel in kernels[:2]]
    assert hint.call_args_list == [
        mock.call("node.start_kernels", many, queue="node.busy"),
        mock.call("node.start_kernel", str(kernels[2].pk), 1, queue="node.quiet"),
    ]
