"""Sessions whose kernels lie on several agents: where they go, and what each node is told of their network."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.wire.cluster_network import ClusterNetwork, most_networks, subnet_of
from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import WorkRequest, work_for_each
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.cluster_access import processes_of
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.planning.preview import preview
from backendai.portal.loops.loops import schedule_group
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session, report_of

pytestmark = pytest.mark.django_db
FIRST = zlib.crc32(settings.DEPLOYMENT.encode()) % most_networks("10.88.0.0/16")


def two_agents(**over: Any) -> list[Agent]:
    return [make_agent(f"node-{number}", gateway_url=f"http://10.0.0.{number}:8090", **over) for number in (1, 2)]


def spread(session: ComputeSession, agents: list[Agent]) -> None:
    kernels = {
        kernel.pk: agents[place % len(agents)].pk for place, kernel in enumerate(session.kernels.order_by("rank"))
    }
    place_sessions(session.resource_group_id, [Assignment(session.pk, kernels)], now=timezone.now())
    session.refresh_from_db()


def test_a_session_too_big_for_one_agent_starts_on_two_when_it_may(cast: Cast) -> None:
    two_agents()
    wish = {"resources": {"cpu": 3, "mem": "1g"}, "cluster_size": 2}
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, **wish)
    assert refused.value.code == "bigger-than-any-agent"
    make_image()
    seen = preview(cast.alice, SessionSpec(image="python", **wish, cluster_mode="multi-node"), now=timezone.now())
    assert set(seen.agents) == {"node-1", "node-2"}
    session = make_session(cast.alice, **wish, cluster_mode="multi-node")
    schedule_group(session.resource_group_id, timezone.now())
    assert {kernel.agent.name for kernel in session.kernels.select_related("agent")} == {"node-1", "node-2"}


def test_each_node_is_told_the_others_and_nobody_has_the_address_of_another(
    cast: Cast, django_assert_num_queries: Any
) -> None:
    agents = two_agents()
    session = make_session(cast.alice, cluster_size=4, cluster_mode="multi-node")
    spread(session, agents)
    specs = []
    for kernel in session.kernels.select_related("agent").order_by("rank"):
        with django_assert_num_queries(4):
            specs.append(spec_for(kernel.agent, kernel.pk))
    networks = [spec.network for spec in specs if spec.network]
    assert [network.remotes for network in networks] == [["10.0.0.2"], ["10.0.0.1"]] * 2
    assert len({network.subnet for network in networks}) == len({network.vni for network in networks}) == 1
    assert networks[0].gateway == networks[2].gateway != networks[1].gateway
    addresses = [network.address for network in networks]
    assert len({*addresses, *(network.gateway for network in networks)}) == 6
    assert {peer.hostname: peer.address for peer in specs[3].peers} == dict(
        zip(["main1", "sub1", "sub2", "sub3"], addresses, strict=True)
    )
    for_fleets = {
        spec.kernel_id: spec for work in work_for_each([WorkRequest(one) for one in agents]) for spec in work.start
    }
    assert for_fleets == {spec.kernel_id: spec for spec in specs}


def test_each_kernel_knows_its_part_of_a_parallel_program(cast: Cast) -> None:
    agent = make_agent(cpu=8, mem="8g")
    session = make_session(
        cast.alice,
        cluster_size=2,
        resources={"cpu": 3, "mem": "1g"},
        environ={"MASTER_PORT": "12345"},
    )
    spread(session, [agent])
    main, sub = (spec_for(agent, kernel.pk) for kernel in session.kernels.all())
    told = {name: sub.environ[name] for name in ("MASTER_ADDR", "NODE_RANK", "NNODES", "PET_NNODES", "PET_NODE_RANK")}
    assert told == {
        "MASTER_ADDR": "main1",
        "NODE_RANK": "1",
        "NNODES": "2",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
    }
    assert main.environ["MASTER_PORT"] == "12345", "what somebody chooses wins"
    assert main.environ["PET_MASTER_PORT"] == sub.environ["PET_MASTER_PORT"]
    assert not {"WORLD_SIZE", "RANK", "PET_NPROC_PER_NODE"} & sub.environ.keys(), "its launcher counts processes"
    assert [(peer.hostname, peer.role, peer.rank, peer.slots) for peer in sub.peers] == [
        ("main1", "main", 0, 3),
        ("sub1", "sub", 1, 3),
    ]
    assert main.keys == sub.keys is not None
    lone = make_session(cast.alice)
    spread(lone, [agent])
    spec = spec_for(agent, lone.kernels.get().pk)
    assert spec.keys is None and "MASTER_ADDR" not in spec.environ


def test_a_kernel_takes_a_process_for_each_accelerator_else_for_each_core() -> None:
    assert processes_of(Slots.parse({"cpu": 8, "mem": "1g", "cuda.device": 2})) == 2
    assert processes_of(Slots.parse({"cpu": "0.5", "mem": "1g", "cuda.shares": "0.5"})) == 1


def test_kernels_that_found_room_on_one_agent_need_no_network_between_agents(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice, cluster_size=2, cluster_mode="multi-node")
    spread(session, [agent])
    assert [spec_for(agent, kernel.pk).network for kernel in session.kernels.all()] == [None, None]


def test_the_portals_own_machine_is_reached_where_the_portal_is(cast: Cast) -> None:
    agents = [make_agent("home"), make_agent("far", gateway_url="http://10.0.0.2:8090")]
    session = make_session(cast.alice, cluster_size=2, cluster_mode="multi-node")
    spread(session, agents)
    with override_settings(DOOR_URL="http://10.0.0.9:8080"):
        network = spec_for(agents[1], session.kernels.get(rank=1).pk).network
    assert network is not None
    assert network.remotes == ["10.0.0.9"]


def test_live_sessions_have_networks_of_their_own_and_ended_ones_give_theirs_back(cast: Cast) -> None:
    agents = two_agents()
    first, second = (make_session(cast.alice, cluster_size=2, cluster_mode="multi-node") for _ in range(2))
    spread(first, agents)
    spread(second, agents)
    assert (first.cluster_network, second.cluster_network) == (FIRST, (FIRST + 1) % 1024)
    waiting = make_session(cast.alice, cluster_size=2, cluster_mode="multi-node")
    ComputeSession.objects.filter(pk=first.pk).update(status="TERMINATED")
    spread(waiting, agents)
    assert waiting.cluster_network == FIRST


def test_other_deployments_begin_with_another_subnet(cast: Cast) -> None:
    agents = two_agents()
    numbers = []
    for name in ("d-1", "d-2"):
        session = make_session(cast.alice, cluster_size=2, cluster_mode="multi-node")
        with override_settings(DEPLOYMENT=name):
            spread(session, agents)
        numbers.append(session.cluster_network)
    assert abs(numbers[0] - numbers[1]) > 1, numbers


@pytest.mark.parametrize(("code", "moves"), [("cluster-network-failed", True), ("scratch-failed", False)])
def test_a_session_whose_subnet_is_in_use_on_an_agent_starts_with_the_next_one(
    cast: Cast, code: str, moves: bool
) -> None:
    agents = two_agents()
    with override_settings(CLUSTER_POOL="10.88.0.0/25"):  # two networks: the next after the last is the first
        session, other = (make_session(cast.alice, cluster_size=2, cluster_mode="multi-node") for _ in range(2))
        spread(session, agents)
        before = session.cluster_network
        for kernel in session.kernels.all():
            report = report_of(kernel, KernelState.TERMINATED, reason=code)
            kernel_reported(kernel.agent, report, now=timezone.now())
        session.refresh_from_db()
        assert (session.status, session.cluster_network == before) == ("PENDING", not moves)
        spread(session, agents)
        spread(other, agents)
    assert {session.cluster_network, other.cluster_network} == {0, 1}


def test_a_session_waits_when_no_network_is_left(cast: Cast) -> None:
    agents = two_agents()
    with override_settings(CLUSTER_POOL="10.88.0.0/26"):
        sessions = [make_session(cast.alice, cluster_size=2, cluster_mode="multi-node") for _ in range(2)]
        for session in sessions:
            spread(session, agents)
    assert [session.cluster_network for session in sessions] == [0, None]
    assert [session.status for session in sessions] == ["SCHEDULED", "PENDING"]


def test_whoever_waits_for_a_network_is_told_and_holds_nobody_back(cast: Cast) -> None:
    two_agents()
    over_agents = {"cluster_size": 2, "cluster_mode": "multi-node"}
    first, second = (make_session(cast.alice, **over_agents) for _ in range(2))
    alone = make_session(cast.alice, cluster_size=2)
    with override_settings(CLUSTER_POOL="10.88.0.0/26"):
        schedule_group(first.resource_group_id, timezone.now())
        for session in (first, second, alone):
            session.refresh_from_db()
        assert [each.status for each in (first, second, alone)] == ["SCHEDULED", "PENDING", "SCHEDULED"]
        assert second.status_reason == "no-cluster-network"
        assert "All 1 networks" in second.status_message
        ComputeSession.objects.filter(pk=first.pk).update(status="TERMINATED")
        schedule_group(first.resource_group_id, timezone.now())
    second.refresh_from_db()
    assert second.status == "SCHEDULED"


@pytest.mark.parametrize(("pool", "most"), [("10.88.0.0/16", 1024), ("10.0.0.0/8", 4096), ("10.0.0.0/27", 0)])
def test_a_pool_is_cut_into_networks_that_do_not_overlap(pool: str, most: int) -> None:
    assert most_networks(pool) == most
    if most:
        assert not subnet_of(pool, 0).overlaps(subnet_of(pool, 1))


def test_a_mode_that_is_none_is_refused(cast: Cast) -> None:
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, cluster_mode="everywhere")
    assert refused.value.field == "cluster_mode"


def test_a_network_crosses_the_process_border_whole() -> None:
    network = ClusterNetwork(vni=7, subnet="10.88.0.0/26", gateway="10.88.0.62", address="10.88.0.1", remotes=["a"])
    assert ClusterNetwork.model_validate_json(network.model_dump_json()) == network
