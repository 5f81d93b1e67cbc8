"""What the scheduler sees of a group is what the database holds, in a number of queries that does not grow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.slots import Slots
from backendai.domain.catalog.models import ImageOnAgent
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.domain.planning import queue
from backendai.domain.planning.snapshot import read_group, read_snapshot
from backendai.scheduler.decide import decide
from backendai.scheduler.sequence import UserHoldings, turns
from backendai.scheduler.sequences import SEQUENCES
from backendai.scheduler.snapshot import SLOT_ORDER, DependencyState, DeviceView, Snapshot
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session, make_sessions

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def look(**over: Any) -> Snapshot:
    return read_snapshot(make_group(), timezone.now(), **over)


def queries() -> int:
    with CaptureQueriesContext(connection) as captured:
        look()
    return len(captured)


def test_the_number_of_queries_does_not_grow_with_sessions_agents_or_kernels(cast: Cast) -> None:
    make_group(sequence="fair-share", backfill=True)
    make_running_session(cast.alice)
    make_session(cast.alice)
    few = queries()
    for _ in range(5):
        make_running_session(cast.bob)
    make_sessions(cast.alice, 20)
    assert queries() == few


@pytest.mark.parametrize("sequence", ["fifo", "lifo"])
def test_the_database_and_the_scheduler_have_one_order(cast: Cast, sequence: str) -> None:
    """Sessions of equal age and priority included, which only their ids tell apart."""
    make_group(sequence=sequence)
    sessions = make_sessions(cast.alice, 12)
    ages = [timezone.now(), timezone.now() - timedelta(hours=1)]
    for number, session in enumerate(sessions):
        changes = {"created_at": ages[number % 2], "priority": 10 + number % 3 // 2}
        ComputeSession.objects.filter(pk=session.pk).update(**changes)
    snapshot = look()
    order = [session.id for session in turns(SEQUENCES[sequence], snapshot, UserHoldings({}))]
    pending = ComputeSession.objects.pending()
    assert list(pending.order_by(*queue.order_of(sequence)).values_list("pk", flat=True)) == order
    assert [session.id for session in snapshot.pending] == order


def test_when_nothing_waits_only_that_is_read(cast: Cast) -> None:
    make_running_session(cast.alice)
    assert queries() == 2  # one of them finds the group
    assert look().agents == ()
    assert [agent.kernels for agent in look(even_if_idle=True).agents] == [1]


def test_an_agent_has_what_the_ledger_and_the_devices_say(cast: Cast) -> None:
    make_group(max_kernels_per_agent=7)
    gpus = {"cuda.shares": ["GPU-0", "GPU-1"]}
    agent = make_agent("gpu-01", capacity={"cpu": "4", "mem": "8589934592", "cuda.shares": "2"}, devices=gpus)
    make_agent("own-limit", max_kernels=3)
    running = make_running_session(cast.alice, agent)
    Kernel.objects.filter(session=running).update(devices={"cuda.shares": {"GPU-1": "0.25"}})
    make_session(cast.alice)
    first, second = look().agents
    assert first.capacity == Slots.parse({"cpu": 4, "mem": "8g", "cuda.shares": 2})
    assert first.occupied == Slots.parse({"cpu": 1, "mem": "512m"})
    assert (first.kernels, first.max_kernels, second.max_kernels) == (1, 7, 3)
    assert first.devices == (
        DeviceView("GPU-0", "cuda.shares", 1000, 0),
        DeviceView("GPU-1", "cuda.shares", 1000, 250),
    )


def test_accelerators_that_an_agent_does_not_offer_are_told_to_who_asks_for_them(cast: Cast) -> None:
    note = {"code": "accelerator-unhealthy", "message": "H100 gets no new sessions: an ECC error (GPU-1).", "fix": ""}
    gpus = {"cpu": "4", "mem": "8589934592", "cuda.device": "1"}
    agent = make_agent("gpu-01", capacity=gpus, devices={"cuda.device": ["GPU-0"]}, notes=[note])
    make_agent("gpu-02", notes=[note | {"code": "vsock"}])
    two = make_session(cast.alice, resources={"cpu": 1, "mem": "1g"})
    ComputeSession.objects.filter(pk=two.pk).update(slots={"cpu": "1", "cuda.device": "2"})
    Kernel.objects.filter(session=two).update(slots={"cpu": "1", "cuda.device": "2"})
    told = "On gpu-01: H100 gets no new sessions: an ECC error (GPU-1)."
    (wait,) = decide(look()).waits
    assert wait.reason.code == "bigger-than-any-agent" and wait.reason.message.endswith(told)
    Agent.objects.filter(pk=agent.pk).update(capacity={"cpu": "4", "mem": "8589934592"}, devices={})
    (wait,) = decide(look()).waits
    assert wait.reason.code == "slot-not-offered" and wait.reason.message.endswith(told)
    Kernel.objects.filter(session=two).update(slots={"cpu": "16"})
    (wait,) = decide(look()).waits
    assert "ECC" not in wait.reason.message, "it does not ask for them"


def test_a_device_is_free_again_when_its_kernel_has_ended(cast: Cast) -> None:
    agent = make_agent(devices={"cuda.device": ["GPU-0"]})
    ended = make_running_session(cast.alice, agent)
    Kernel.objects.filter(session=ended).update(devices={"cuda.device": {"GPU-0": "1"}}, status=Status.TERMINATED)
    make_session(cast.alice)
    assert [device.taken for device in look().agents[0].devices] == [0]


def test_an_image_that_no_registry_has_ties_a_session_to_the_nodes_that_have_it(cast: Cast) -> None:
    having, _ = make_agent("having"), make_agent("without")
    native = make_agent("native", backend="process")
    make_image("python", is_built_here=True, process_reference="process/python")
    make_image("for-containers", is_built_here=True)
    make_image("from-registry", reference="registry.example/tool:1")
    make_session(cast.alice)
    make_session(cast.alice, image="from-registry")
    make_session(cast.alice, image="for-containers")
    ImageOnAgent.objects.create(agent=having, reference="local/python:latest")
    snapshot = look()
    tied_to = [session.kernels[0].node_image for session in snapshot.pending]
    assert tied_to == ["local/python:latest", "registry.example/tool:1", "local/for-containers:latest"]
    images = {agent.name: agent.images for agent in snapshot.agents}
    pulled = {"registry.example/tool:1"}
    assert images == {
        "having": {"local/python:latest"} | pulled,
        "without": pulled,
        native.name: {"local/python:latest"},
    }


def test_a_native_agent_gets_no_session_of_an_image_without_a_native_command(cast: Cast) -> None:
    native = make_agent("native", backend="process", cpu=16)
    make_image("tool", reference="registry.example/tool:1")
    make_image("both", reference="registry.example/both:1", process_reference="process/python")
    make_session(cast.alice, image="tool", name="tool-1")
    make_session(cast.alice, image="both", name="both-1")
    snapshot = look()
    plan = decide(snapshot)
    names = {session.id: session.name for session in snapshot.pending}
    assert [names[placement.session_id] for placement in plan.placements] == ["both-1"]
    (wait,) = plan.waits
    assert wait.reason.message == "Agent native has no containers, which image registry.example/tool:1 needs."
    make_agent("docker", cpu=1)
    plan = decide(look())
    docker = next(agent.id for agent in look().agents if agent.name == "docker")
    assert {agent for placement in plan.placements for agent in placement.kernels.values()} == {docker, native.pk}


def test_an_agent_short_of_disk_space_takes_only_sessions_whose_image_it_has(cast: Cast) -> None:
    full, roomy = make_agent("full", low_disk=True), make_agent("roomy", schedulable=False)
    native = make_agent("native", backend="process", low_disk=True, status="LOST")
    digest = "sha256:" + "d" * 64
    here = make_image("here", reference="cr.example/here:1", digest=digest)
    make_image("moved", reference="cr.example/moved:1", digest=digest)
    make_image("away", reference="cr.example/away:1")
    rows = [ImageOnAgent(agent=full, reference=here.reference, digest=digest),
            ImageOnAgent(agent=full, reference="cr.example/moved:1", digest="sha256:" + "e" * 64)]  # fmt: skip
    ImageOnAgent.objects.bulk_create(rows)
    for name in ("here", "moved", "away"):
        make_session(cast.alice, image=name, name=f"s-{name}")
    few = queries()
    snapshot = look()
    everything = {"cr.example/here:1", "cr.example/moved:1", "cr.example/away:1"}
    images = {agent.id: agent.images for agent in snapshot.agents}
    assert images == {full.pk: {"cr.example/here:1"}, roomy.pk: everything, native.pk: frozenset()}
    plan = decide(snapshot)
    names = {session.id: session.name for session in snapshot.pending}
    assert [names[placement.session_id] for placement in plan.placements] == ["s-here"]
    reasons = {names[wait.session_id]: wait.reason for wait in plan.waits}
    assert {name: reason.code for name, reason in reasons.items()} == dict.fromkeys(
        ("s-moved", "s-away"), "no-agent-schedulable"
    )
    assert reasons["s-away"].message == (
        "Agent roomy takes no new sessions: an administrator paused it. "
        "Agent full is short of disk space and pulls nothing; it lacks image cr.example/away:1. "
        "Agent native has no containers, which image cr.example/away:1 needs."
    )
    Agent.objects.filter(pk=full.pk).update(low_disk=False)
    native.delete()
    assert {session.kernels[0].node_image for session in look().pending} == {""}, (
        "it matters only while somebody is short"
    )
    assert queries() == few - 1
    assert len(decide(look()).placements) == 3


def test_an_agent_that_is_drained_is_there_and_takes_nothing(cast: Cast) -> None:
    make_image("python", is_built_here=True)
    ends_at = timezone.now() + timedelta(hours=1)
    drained = make_agent("local", status=Agent.Status.DRAINING, drain_started_at=timezone.now(), drain_ends_at=ends_at)
    make_agent("native-2", backend="process")
    ImageOnAgent.objects.create(agent=drained, reference="local/python:latest")
    make_session(cast.alice)
    (wait,) = decide(look()).waits
    assert wait.reason.code == "agent-draining"
    assert wait.reason.message == (
        f"Agent local is being drained and takes no new sessions; those on it end by {ends_at:%Y-%m-%d %H:%M} UTC. "
        "Agent native-2 has no containers, which image local/python:latest needs."
    )


def test_companions_are_counted_for_launches_with_a_wish_only(cast: Cast) -> None:
    launch = "6f1c6c0e-5d0e-4b5e-9a3c-111111111111"
    running = make_running_session(cast.alice, make_agent())
    waiting = make_session(cast.alice)
    ComputeSession.objects.filter(pk__in=[running.pk, waiting.pk]).update(launch_id=launch)
    assert look().agents[0].companions == {}
    ComputeSession.objects.filter(pk=waiting.pk).update(placement="spread")
    snapshot = look()
    assert snapshot.agents[0].companions == {launch: 1}
    assert (snapshot.pending[0].launch, snapshot.pending[0].placement) == (launch, "spread")


def test_a_session_says_whom_it_counts_against_and_what_it_wishes(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice)
    long_ago = timezone.now() - timedelta(hours=5)
    ComputeSession.objects.filter(pk=session.pk).update(
        designated_agents=[str(agent.pk)], batch_timeout=timedelta(hours=1), overtaken_since=long_ago, attempts=4
    )
    (view,) = look().pending
    key = cast.alice.key_pairs.get().access_key
    project = session.project
    assert view.holder.keys == (
        f"key-pair:{key}", f"user:{cast.alice.pk}", f"project:{project.pk}", f"domain:{project.domain_id}"
    )  # fmt: skip
    assert view.designated == {agent.pk}
    assert (view.longest_run, view.overtaken_since, view.attempts) == (timedelta(hours=1), long_ago, 4)


@pytest.mark.parametrize(
    ("status", "result", "state"),
    [
        ("RUNNING", "UNDEFINED", DependencyState.LIVE),
        ("TERMINATING", "SUCCESS", DependencyState.LIVE),
        ("TERMINATED", "SUCCESS", DependencyState.SUCCEEDED),
        ("TERMINATED", "FAILED", DependencyState.FAILED),
        ("TERMINATED", "UNDEFINED", DependencyState.FAILED),
        ("CANCELLED", "UNDEFINED", DependencyState.FAILED),
        ("ERROR", "SUCCESS", DependencyState.FAILED),
    ],
)
def test_a_dependency_has_succeeded_only_by_ending_well(cast: Cast, status: str, result: str, state: Any) -> None:
    first, second = make_session(cast.alice), make_session(cast.alice)
    second.depends_on.add(first)
    ComputeSession.objects.filter(pk=first.pk).update(status=status, result=result)
    view = next(session for session in look().pending if session.id == second.pk)
    assert [(one.id, one.name, one.state) for one in view.dependencies] == [(first.pk, first.name, state)]


def test_the_rules_are_those_of_the_group(cast: Cast) -> None:
    group = make_group(
        sequence="lifo", selection="dispersed", retries_to_skip=3, device_allocation="fill", allow_fragmentation=False,
        allowed_session_types=["batch"], next_agent="n2",
    )  # fmt: skip
    rules = look().rules
    assert (rules.sequence, rules.selection, rules.retries_to_skip) == ("lifo", "dispersed", 3)
    assert (rules.fill_devices, rules.allow_fragmentation, rules.next_agent) == (True, False, "n2")
    assert (rules.session_types, rules.slot_order) == ({"batch"}, SLOT_ORDER)
    group.slot_order = ["mem", "cpu"]
    assert read_snapshot(group, timezone.now()).rules.slot_order == ("mem", "cpu")


def test_what_users_hold_is_read_for_orders_that_ask(cast: Cast) -> None:
    group = make_group(sequence="drf")
    make_running_session(cast.bob)
    make_session(cast.alice)
    assert look().held == {f"user:{cast.bob.pk}": Slots.parse({"cpu": 1, "mem": "512m"})}
    group.sequence = "fifo"
    assert read_snapshot(group, timezone.now()).held == {}


def test_what_runs_is_read_for_backfill_with_the_end_that_is_known(cast: Cast) -> None:
    group = make_group(backfill=True)
    agent = make_agent()
    ending, endless = make_running_session(cast.alice, agent, cluster_size=2), make_running_session(cast.alice, agent)
    make_session(cast.alice)
    earlier = timezone.now() - timedelta(minutes=5)
    hour = timedelta(hours=1)
    ComputeSession.objects.filter(pk=ending.pk).update(started_at=earlier, batch_timeout=hour, ends_at=earlier + hour)
    running = {one.id: one for one in look().running}
    assert running[ending.pk].allocations == ((agent.pk, Slots.parse({"cpu": 2, "mem": "1g"}), 2),)
    assert running[ending.pk].ends_at == earlier + timedelta(hours=1)
    assert running[endless.pk].ends_at is None
    ComputeSession.objects.filter(pk=ending.pk).update(started_at=None, scheduled_at=earlier, status=Status.SCHEDULED)
    longest_start = group.pull_timeout + group.create_timeout
    starting = {one.id: one for one in look().running}[ending.pk]
    assert starting.ends_at == earlier + longest_start + timedelta(hours=1)
    Agent.objects.filter(pk=agent.pk).update(slowness=4)
    starting = {one.id: one for one in look().running}[ending.pk]
    assert starting.ends_at == earlier + longest_start + 3 * group.create_timeout + timedelta(hours=1)
    group.backfill = False
    assert read_snapshot(group, timezone.now()).running == ()


def test_a_session_of_which_nothing_can_be_made_is_set_aside(cast: Cast) -> None:
    good, bad = make_session(cast.alice), make_session(cast.alice)
    Kernel.objects.filter(session=bad).update(slots={"cpu": "many"})
    reading = read_group(make_group(), timezone.now())
    assert [session.id for session in reading.snapshot.pending] == [good.pk]
    assert [pk for pk, _ in reading.broken] == [bad.pk]


@pytest.mark.parametrize(("sequence", "expected"), [("fifo", ["urgent", "first"]), ("lifo", ["urgent", "third"])])
def test_of_too_many_it_reads_those_whose_turn_comes_first(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, sequence: str, expected: list[str]
) -> None:
    make_group(sequence=sequence)
    for name in ("first", "second", "third"):
        make_session(cast.alice, name=name)
    urgent = make_session(cast.alice, name="urgent")
    ComputeSession.objects.filter(pk=urgent.pk).update(priority=90)
    monkeypatch.setattr(queue, "MOST_PER_PASS", 2)
    assert [session.name for session in look().pending] == expected
