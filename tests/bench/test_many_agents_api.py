"""One call for many nodes: each by its own token, each for its own kernels, in a fixed number of statements."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.wire.messages import ImageSighting, JoinUp, KernelReport, KernelSighting, KernelState, SyncUp
from backendai.domain.catalog.models import ImageOnAgent
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.records.logs import saved_log
from backendai.domain.compute.status import Status
from bench.many_agents.messages import FLEET_WORDS, FleetAnswer, FleetDown, FleetNode, FleetUp, KernelLogTail
from tests.cast import Cast
from tests.factories import make_group, make_session, place

pytestmark = [pytest.mark.django_db, pytest.mark.urls("bench.many_agents.urls")]
SMALL = {"cpu": "0.1", "mem": "64m"}


@pytest.fixture
def nodes() -> list[tuple[Agent, str]]:
    return [join(f"n-{number}") for number in range(3)]


@pytest.mark.ci
def test_each_node_gets_what_it_should_start_and_nothing_of_its_neighbours(
    cast: Cast, nodes: list[tuple[Agent, str]]
) -> None:
    kernels = [placed(cast, agent) for agent, _ in nodes]
    answers = call(*(FleetNode(token=token) for _, token in nodes))
    assert [[spec.kernel_id for spec in answer.start] for answer in answers] == [[kernel.pk] for kernel in kernels]
    assert answers[0].start[0] == spec_for(nodes[0][0], kernels[0].pk), "the same as a node of its own is told"
    known = [(kernels[0].pk, 1)]
    assert call(FleetNode(token=nodes[0][1], known=known))[0].start == []


def test_a_start_and_an_end_go_their_whole_way(cast: Cast, nodes: list[tuple[Agent, str]]) -> None:
    agent, token = nodes[0]
    kernel = placed(cast, agent)
    started_at = report(kernel, KernelState.RUNNING, container_id="c1")
    assert call(FleetNode(token=token, reports=[started_at]))[0].applied == [True]
    kernel.session.refresh_from_db()
    assert kernel.session.status == Status.RUNNING
    tail = KernelLogTail(kernel_id=kernel.pk, generation=1, text="line-1\n", truncated=True)
    ended = report(kernel, KernelState.TERMINATED, exit_code=0, reason="exited")
    assert call(FleetNode(token=token, logs=[tail], reports=[ended]))[0].applied == [True]
    kernel.session.refresh_from_db()
    assert kernel.session.status == Status.TERMINATED
    assert saved_log(kernel) == (b"line-1\n", True)


def test_unknown_and_retired_nodes_are_refused_and_the_others_served(
    cast: Cast, nodes: list[tuple[Agent, str]]
) -> None:
    Agent.objects.filter(pk=nodes[1][0].pk).update(status=Agent.Status.TERMINATED)
    kernel = placed(cast, nodes[2][0])
    tokens = [nodes[0][1], nodes[1][1], "node_of_nobody", nodes[2][1]]
    answers = call(*(FleetNode(token=token) for token in tokens))
    assert [answer.status for answer in answers] == [200, 401, 401, 200]
    assert [spec.kernel_id for spec in answers[3].start] == [kernel.pk]


def test_a_node_that_speaks_of_another_ones_kernel_changes_nothing_and_harms_nobody(
    cast: Cast, nodes: list[tuple[Agent, str]]
) -> None:
    (thief, first), (owner, second), _ = nodes
    theirs, mine = placed(cast, owner), placed(cast, thief)
    lies = [report(theirs, KernelState.TERMINATED), report(mine, KernelState.RUNNING)]
    log = KernelLogTail(kernel_id=theirs.pk, generation=1, text="forged")
    answers = call(FleetNode(token=first, reports=lies, logs=[log]), FleetNode(token=second))
    assert answers[0].applied == [False, True]
    assert [spec.kernel_id for spec in answers[1].start] == [theirs.pk]
    assert saved_log(theirs) is None


def test_a_node_whose_words_make_no_sense_is_refused_alone(nodes: list[tuple[Agent, str]]) -> None:
    good, bad = sync(), sync(capacity={"cpu": "many"})
    answers = call(FleetNode(token=nodes[0][1], up=good), FleetNode(token=nodes[1][1], up=bad))
    assert [answer.status for answer in answers] == [200, 400]
    assert [Agent.objects.get(pk=agent.pk).status for agent, _ in nodes[:2]] == [
        "ALIVE",
        "DRAINING",
    ], "it was heard, and takes nothing"


def test_a_sync_says_what_the_node_has_and_hears_what_it_should_have(
    cast: Cast, nodes: list[tuple[Agent, str]]
) -> None:
    agent, token = nodes[0]
    kernel = placed(cast, agent)
    stranger = KernelSighting(kernel_id=cast.alice.pk, generation=1, running=True)
    images = [ImageSighting(reference="simulated/python")]
    up = sync(images=images, images_digest="d1", kernels=[stranger])
    (answer,) = call(FleetNode(token=token, up=up))
    assert answer.down is not None
    assert [(one.kernel_id, one.started) for one in answer.down.desired] == [(kernel.pk, False)]
    assert (answer.down.unwanted, answer.down.unknown) == ([], [stranger])
    assert list(ImageOnAgent.objects.values_list("agent", "reference")) == [(agent.pk, "simulated/python")]
    (answer,) = call(FleetNode(token=token, up=sync(images_digest="d2")))
    assert answer.down is not None
    assert answer.down.want_images


def test_a_node_that_says_the_same_again_counts_as_alive(nodes: list[tuple[Agent, str]]) -> None:
    agent, token = nodes[0]
    call(FleetNode(token=token, up=sync()))
    long_ago = timezone.now() - timedelta(hours=1)
    Agent.objects.filter(pk=agent.pk).update(last_seen_at=long_ago)
    call(FleetNode(token=token, up=sync()))
    agent.refresh_from_db()
    assert (agent.status, agent.last_seen_at > long_ago) == ("ALIVE", True)
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.LOST, lost_at=long_ago)
    call(FleetNode(token=token, up=sync()))
    agent.refresh_from_db()
    assert (agent.status, agent.lost_at) == ("ALIVE", None)


def test_an_order_to_end_reaches_the_node_without_a_sync(cast: Cast, nodes: list[tuple[Agent, str]]) -> None:
    agent, token = nodes[0]
    kernel = placed(cast, agent)
    Kernel.objects.filter(pk=kernel.pk).update(status=Status.TERMINATING)
    (answer,) = call(FleetNode(token=token))
    assert [(order.kernel_id, order.grace) for order in answer.stop] == [(kernel.pk, 5.0)]


def test_who_has_no_token_is_not_even_read(nodes: list[tuple[Agent, str]]) -> None:
    body = FleetUp(nodes=[FleetNode(token=nodes[0][1])]).model_dump_json()
    for headers in ({}, {"Authorization": "Node nobody"}, {"Authorization": f"Bearer {nodes[0][1]}"}):
        assert post(body, headers).status_code == 401
    known = {"Authorization": f"Node {nodes[0][1]}"}
    assert [post(text, known).status_code for text in ("", "{}", '{"nodes": []}', body)] == [400, 400, 400, 200]


def test_a_call_holds_each_node_once_and_so_many_words_of_it(cast: Cast, nodes: list[tuple[Agent, str]]) -> None:
    token = nodes[0][1]
    kernel = placed(cast, nodes[0][0])
    said = {"token": token, "reports": [report(kernel, KernelState.RUNNING).model_dump(mode="json")] * FLEET_WORDS}
    too_much = {**said, "reports": [*said["reports"], said["reports"][0]]}
    known = {"Authorization": f"Node {token}"}
    answers = [post(json.dumps({"nodes": told}), known).status_code for told in ([said], [said, said], [too_much])]
    assert answers == [200, 400, 422]


def test_the_number_of_statements_does_not_grow_with_the_nodes(cast: Cast) -> None:
    counts = []
    for number in (3, 30):
        some = [join(f"many-{number}-{place_}") for place_ in range(number)]
        kernels = [placed(cast, agent) for agent, _ in some]
        ups = [FleetNode(token=token, up=sync()) for _, token in some]
        words = [
            FleetNode(token=token, reports=[report(kernel, KernelState.RUNNING)])
            for (_, token), kernel in zip(some, kernels, strict=True)
        ]
        counts.append([statements(lambda nodes=nodes: call(*nodes)) for nodes in (ups, ups, words)])
    assert counts[0] == counts[1]


def join(name: str) -> tuple[Agent, str]:
    token = create_join_token(make_group())
    agent, text = join_agent(JoinUp(token=token, name=name, gateway_url=""))
    Agent.objects.filter(pk=agent.pk).update(capacity={"cpu": "64", "mem": str(2**36)}, status=Agent.Status.LOST)
    return agent, text


def placed(cast: Cast, agent: Agent) -> Kernel:
    session = make_session(cast.alice, resources=SMALL, session_type="batch", startup_command="true")
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.ALIVE)
    place(session, agent)
    kernel: Kernel = session.kernels.get()
    assert kernel.agent_id == agent.pk
    return kernel


def sync(**over: Any) -> SyncUp:
    told: dict[str, Any] = {
        "boot_id": "b",
        "version": "1.0",
        "backend": "simulated",
        "architecture": "x86_64",
        "gateway_url": "",
        "capacity": {"cpu": "64", "mem": str(2**36)},
    }
    return SyncUp(**(told | over))


def report(kernel: Kernel, state: KernelState, **told: Any) -> KernelReport:
    return KernelReport(kernel_id=kernel.pk, generation=1, state=state, **told)


def call(*nodes: FleetNode) -> list[FleetAnswer]:
    answer = post(FleetUp(nodes=list(nodes)).model_dump_json(), {"Authorization": f"Node {nodes[0].token}"})
    assert answer.status_code == 200, answer.content
    return FleetDown.model_validate_json(answer.content).nodes


def post(body: str, headers: dict[str, str]) -> Any:
    return Client().post("/node/v1/fleet", body, content_type="application/json", headers=headers)


def statements(work: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as captured:
        work()
    return len(captured)
