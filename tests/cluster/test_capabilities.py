"""What the portal knows of the abilities of agents, of any version."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from backendai.agent.backends.abilities import declared_by
from backendai.agent.backends.base import Backend
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.native.backend import NativeBackend
from backendai.agent.backends.simulated.backend import SimulatedBackend
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import SyncUp
from backendai.domain.cluster.capabilities import capabilities_in, capabilities_of, reported, why_not
from backendai.domain.cluster.services import record_sync
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def sync(backend: str, capabilities: list[str] | None) -> SyncUp:
    return SyncUp(
        boot_id="b",
        version="1",
        backend=backend,
        architecture="x86_64",
        gateway_url="",
        capacity={"cpu": "4"},
        capabilities=capabilities,
    )


def test_what_an_agent_reports_counts_and_a_change_is_news_for_the_scheduler() -> None:
    agent = make_agent(backend="docker")
    assert Capability.COMMIT in capabilities_of(agent), "it has not reported yet"
    assert record_sync(agent, sync("vm", ["images", "later"]), now=timezone.now())
    agent.refresh_from_db()
    assert agent.capabilities == ["images", "later"]
    assert why_not(agent, Capability.IMAGES) == ""
    assert "cannot save sessions as images" in why_not(agent, Capability.COMMIT)
    assert why_not(agent, Capability.FOLDERS) == f"Agent {agent.name} lacks the capability folders."
    assert "no SSH to each other" in why_not(agent, Capability.CLUSTER_FILES)
    assert record_sync(agent, sync("vm", ["images"]), now=timezone.now())


def test_an_agent_of_an_earlier_version_gets_what_its_backend_can_do_and_no_jobs() -> None:
    agent = make_agent()
    record_sync(agent, sync("process", None), now=timezone.now())
    agent.refresh_from_db()
    assert Capability.NATIVE in capabilities_of(agent) and Capability.IMAGES not in capabilities_of(agent)
    assert capabilities_in(json.dumps(agent.capabilities), "process") == capabilities_of(agent)
    assert not [name for name in reported(None, "docker") if name.startswith("job.")]


@pytest.mark.parametrize("backend", [DockerBackend, NativeBackend, SimulatedBackend])
def test_what_is_assumed_of_earlier_agents_is_not_more_than_what_they_report_today(backend: type[Backend]) -> None:
    assert set(reported(None, backend.name)) <= declared_by(backend)
    kinds = {Capability.NATIVE, Capability.IMAGES}
    assert len(kinds & backend.capabilities) == 1, "kernels start from images, or from what the machine has"
