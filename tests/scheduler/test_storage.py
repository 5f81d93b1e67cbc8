"""Folders bind sessions to the agents that mount their storage hosts."""

from __future__ import annotations

import pytest

from backendai.scheduler.snapshot import StorageNeed
from tests.scheduler.worlds import a_session, agents_of, an_agent, plan_of, wait_of

ON_GPU3 = StorageNeed(frozenset({"gpu3-disk"}), (("data", "gpu3-disk"),))
READ_ONLY = StorageNeed(frozenset({"gpu3-disk", "gpu3-disk:view"}), (("data", "gpu3-disk"),))
MOUNTS = frozenset({"gpu3-disk", "gpu3-disk:view", "gpu3-disk:part"})


@pytest.mark.parametrize("number", [3, 200])
@pytest.mark.parametrize("selection", ["concentrated", "dispersed", "round-robin"])
@pytest.mark.parametrize("devices", [{}, {"cuda.device": 1}])
def test_a_session_goes_where_its_folders_can_be_mounted(number, selection, devices):
    agents = [an_agent(f"gpu{each}", storage=MOUNTS if each % 2 else frozenset()) for each in range(number)]
    session = a_session(asks={"cpu": 1} | devices, storage=ON_GPU3)
    plan = plan_of(agents, [session], selection=selection)
    assert int(agents_of(plan, session, agents)[0][3:]) % 2


@pytest.mark.parametrize("placement", ["spread", "pack"])
def test_the_kernels_of_a_cluster_all_go_there(placement):
    agents = [an_agent(f"gpu{each}", storage=MOUNTS if each in (1, 2) else frozenset()) for each in range(4)]
    session = a_session(kernels=[{"cpu": 3}] * 4, multi_node=True, storage=ON_GPU3, placement=placement, launch="one")
    assert set(agents_of(plan_of(agents, [session]), session, agents)) == {"gpu1", "gpu2"}


def test_sessions_without_folders_go_anywhere_and_are_not_taken_for_others():
    agents = [an_agent("gpu1"), an_agent("gpu3", storage=MOUNTS, used={"cpu": 8})]
    bound, free = a_session("bound", storage=ON_GPU3, age=2), a_session("free", age=1)
    plan = plan_of(agents, [bound, free], retries_to_skip=0, sequence="fifo")
    assert wait_of(plan, bound).reason.code == "insufficient-resources"


def test_the_reason_says_where_the_folder_lies_and_what_is_missing_there():
    agents = [an_agent("gpu1"), an_agent("gpu2"), an_agent("gpu3", storage=MOUNTS, used={"cuda.device": 4})]
    session = a_session(asks={"cuda.device": 2}, storage=ON_GPU3)
    reason = wait_of(plan_of(agents, [session]), session).reason
    assert reason.code == "insufficient-resources"
    assert reason.message == (
        "Folder data is on gpu3-disk, which only gpu3 mounts. No agent has room for 2 GPUs now: "
        "gpu3 comes closest (2 GPUs requested, 0 available)."
    )
    assert reason.details["agents"]["storage"] == 2
    assert reason.details["storage_hosts"] == ["gpu3-disk"]


def reason_of(agents, storage):
    session = a_session(storage=storage)
    return wait_of(plan_of(agents, [session]), session).reason


def test_no_agent_mounts_it():
    reason = reason_of([an_agent("gpu1"), an_agent("gpu2")], ON_GPU3)
    assert (reason.code, reason.message) == (
        "storage-not-on-agent",
        "Folder data is on gpu3-disk, which none of 2 agents mounts.",
    )


def test_the_fault_of_a_host_is_passed_on():
    agents = [an_agent("gpu1"), an_agent("gpu3", storage_faults={"gpu3-disk": "The share is not mounted."})]
    reason = reason_of(agents, ON_GPU3)
    assert (reason.code, reason.message) == (
        "storage-fault",
        "Folder data is on gpu3-disk. Agent gpu3 cannot mount gpu3-disk: The share is not mounted.",
    )


def test_an_agent_that_cannot_mount_read_only_is_left_out():
    agents = [an_agent("gpu1"), an_agent("gpu3", storage=frozenset({"gpu3-disk"}))]
    reason = reason_of(agents, READ_ONLY)
    assert (reason.code, reason.message) == (
        "storage-feature-missing",
        "Folder data is on gpu3-disk, of which agent gpu3 cannot mount read-only.",
    )
    assert not plan_of(agents, [a_session(storage=ON_GPU3)]).waits


def test_the_only_agent_that_mounts_it_takes_nothing():
    agents = [an_agent("gpu1"), an_agent("gpu3", storage=MOUNTS, schedulable=False)]
    reason = reason_of(agents, ON_GPU3)
    assert reason.message == (
        "Folder data is on gpu3-disk, which only gpu3 mounts. "
        "Agent gpu3 takes no new sessions: an administrator paused it."
    )


def test_folders_on_several_hosts_need_an_agent_that_mounts_all():
    both = StorageNeed(frozenset({"one", "two"}), (("a", "one"), ("b", "two")))
    agents = [an_agent("gpu1", storage=frozenset({"one"})), an_agent("gpu2", storage=frozenset({"two"}))]
    assert reason_of(agents, both).message == "Folders a, b are on one and two, which none of 2 agents mounts."
    agents.append(an_agent("gpu3", storage=frozenset({"one", "two"})))
    session = a_session(storage=both)
    assert agents_of(plan_of(agents, [session]), session, agents) == ["gpu3"]


def test_backfill_reserves_only_where_the_folders_can_be_mounted():
    agents = [an_agent("gpu1", used={"cpu": 8}), an_agent("gpu3", storage=MOUNTS, used={"cpu": 8})]
    bound, other = a_session("bound", {"cpu": 8}, storage=ON_GPU3, age=5), a_session("other", {"cpu": 1}, age=1)
    agents[0] = an_agent("gpu1", used={"cpu": 4})
    plan = plan_of(agents, [bound, other], backfill=True)
    assert agents_of(plan, other, agents) == ["gpu1"]
