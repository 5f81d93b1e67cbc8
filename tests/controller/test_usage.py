"""What nodes say about the use of their kernels, on its way through the node API."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.wire.messages import JoinUp, SyncUp
from backendai.base.wire.usage import KernelUsage, UsageReport
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel, SessionTraffic
from backendai.domain.compute.services.records.traffic import note_work
from backendai.domain.usage.models import UsageSample
from backendai.portal.agents import usage as door
from tests.cast import Cast
from tests.factories import make_group, make_running_session

pytestmark = pytest.mark.django_db


def join(name: str) -> tuple[Agent, str]:
    token = create_join_token(make_group(), reusable=True)
    agent, text = join_agent(JoinUp(token=token, name=name, gateway_url="http://node:1"))
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.ALIVE, last_seen_at=timezone.now())
    return agent, text


def kernel_on(cast: Cast, agent: Agent) -> Kernel:
    agent.refresh_from_db()
    agent.capacity = {"cpu": "4", "mem": str(2**33)}
    agent.save()
    kernel = make_running_session(cast.alice, agent).kernels.get()
    Kernel.objects.filter(pk=kernel.pk).update(started_at=timezone.now() - timedelta(hours=1))
    return kernel


def up(*kernels: Kernel) -> SyncUp:
    used = [KernelUsage(kernel_id=one.pk, generation=one.generation, seconds=10.0, cpu=0.5) for one in kernels]
    return SyncUp(
        boot_id="b1",
        version="1",
        backend="docker",
        architecture="x86_64",
        gateway_url="http://node:1",
        capacity={"cpu": "4", "mem": str(2**33)},
        usage=UsageReport(at=timezone.now().timestamp(), kernels=used),
    )


def sync(token: str, message: dict[str, Any]) -> int:
    answer = Client().post(
        "/node/v1/sync",
        json.dumps(message),
        content_type="application/json",
        headers={"Authorization": f"Node {token}"},
    )
    return int(answer.status_code)


def test_a_sync_brings_samples(cast: Cast) -> None:
    agent, token = join("n-1")
    message = up(kernel_on(cast, agent)).model_dump(mode="json")
    assert sync(token, message) == sync(token, message) == 200
    assert list(UsageSample.objects.values_list("cpu", flat=True)) == [0.5]


def test_a_node_cannot_speak_for_the_kernels_of_another(cast: Cast) -> None:
    (agent, _), (_, foreign) = join("n-1"), join("n-2")
    assert sync(foreign, up(kernel_on(cast, agent)).model_dump(mode="json")) == 200
    assert not UsageSample.objects.exists()


@pytest.mark.parametrize(("name", "value"), [("seconds", -1), ("mem_bytes", -5), ("net_rx", 2**70), ("cpu", "much")])
def test_nonsense_is_refused(cast: Cast, name: str, value: object) -> None:
    agent, token = join("n-1")
    message = up(kernel_on(cast, agent)).model_dump(mode="json")
    message["usage"]["kernels"][0][name] = value
    assert sync(token, message) == 400
    assert not UsageSample.objects.exists()


def test_samples_that_cannot_be_kept_do_not_keep_a_node_from_its_orders(cast: Cast) -> None:
    agent, token = join("n-1")
    message = up(kernel_on(cast, agent)).model_dump(mode="json")
    with patch.object(door, "keep", side_effect=RuntimeError("the disk is full")):
        assert sync(token, message) == 200
    assert not UsageSample.objects.exists()


def test_code_that_runs_counts_as_use_of_its_session_and_is_written_every_half_minute(cast: Cast) -> None:
    agent, token = join("n-1")
    kernel = kernel_on(cast, agent)
    message = {**up(kernel).model_dump(mode="json"), "usage": None, "working": [str(kernel.pk)]}
    assert sync(token, message) == 200
    first = SessionTraffic.objects.get(session=kernel.session).last_at
    assert timezone.now() - first < timedelta(seconds=30)
    assert sync(token, message) == 200
    assert SessionTraffic.objects.get().last_at == first
    SessionTraffic.objects.update(last_at=first - timedelta(minutes=1))
    assert sync(token, message) == 200
    assert SessionTraffic.objects.get().last_at >= first


def test_a_node_cannot_use_sessions_of_another_node(cast: Cast) -> None:
    (agent, _), (_, foreign) = join("n-1"), join("n-2")
    kernel = kernel_on(cast, agent)
    message = {**up(kernel).model_dump(mode="json"), "usage": None, "working": [str(kernel.pk)]}
    assert sync(foreign, message) == 200
    assert not SessionTraffic.objects.exists()


def test_code_that_runs_costs_two_statements_however_many_kernels_there_are(cast: Cast) -> None:
    agent, _ = join("n-1")
    kernels = [kernel_on(cast, agent) for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        assert note_work({agent.pk: [one.pk for one in kernels]}, timezone.now()) == 3
    assert len(queries) == 2
