"""What nodes say about the use of their kernels, on its way through the node API."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.test import Client
from django.utils import timezone

from backendai.cluster.joining import create_join_token, join_agent
from backendai.cluster.models import Agent
from backendai.compute.models import Kernel
from backendai.controller import usage as door
from backendai.usage.models import UsageSample
from backendai.wire.messages import JoinUp, SyncUp
from backendai.wire.usage import KernelUsage, UsageReport
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
