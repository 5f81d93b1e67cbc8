"""An image of a registry with a password comes onto a node of the real engine, by the portal's word alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from docker import APIClient

from backendai.activity.models import BackgroundJob
from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker import DockerBackend
from backendai.agent.lanes import Claim, Lanes
from backendai.agent.pulls import Pulls
from backendai.catalog.models import Registry
from backendai.catalog.pulls import pull_spec, pulls_reported, start_pull
from backendai.catalog.registries import write_registry
from backendai.cluster.models import Agent
from backendai.compute.services.chores import chores_of
from backendai.wire.pulls import PullReport, PullSpec
from tests.agent.registry_images import add_image
from tests.cast import Cast
from tests.catalog.fake_registry import ACCOUNT, FakeRegistry, serving
from tests.factories import make_agent, make_image

pytestmark = [pytest.mark.docker, pytest.mark.django_db]


class PortalNextDoor:
    """The real portal's verbs, without the way between."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.said: list[PullReport] = []

    def fetch_pull(self, pull_id: UUID) -> PullSpec:
        return pull_spec(self.agent, pull_id)

    def report_pull(self, report: PullReport) -> bool:
        self.said.append(report)
        return pulls_reported([(self.agent, report)], now=timezone.now())[0]


@pytest.fixture
def registry(engine: APIClient) -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        registry.wants_token = True
        yield registry
        for image in engine.images(name=f"{registry.address}/pin"):
            engine.remove_image(image["Id"], force=True)


def test_a_node_fetches_an_image_of_a_registry_that_lets_in_the_portals_account_only(
    cast: Cast, backend: DockerBackend, engine: APIClient, registry: FakeRegistry
) -> None:
    digest = add_image(registry, "1", "first")
    image = make_image("pin", reference=f"{registry.address}/pin:1", digest=digest)
    with pytest.raises(BackendError) as refused:
        backend.pull(image.reference, timeout=30, progress=lambda *_: None)
    assert refused.value.code == "registry-denied"

    agent = make_agent()
    account: dict[str, Any] = {"username": ACCOUNT[0], "password": "wrong"}
    lab = write_registry(None, Registry(), {"name": "lab", "url": f"http://{registry.address}"} | account)
    portal = PortalNextDoor(agent)
    pulls = Pulls(backend, portal, Lanes(starts=1, pulls=1, ends=1), on_pulled=lambda: None)  # type: ignore[arg-type]
    job = carry_out(cast, image, agent, pulls)
    assert (job.status, portal.said[-1].state) == ("FAILED", "FAILED")
    assert "wants an account, or another one" in job.result["parts"][0]["message"]

    write_registry(None, lab, {"password": ACCOUNT[1]})
    job = carry_out(cast, image, agent, pulls)
    assert (job.status, job.message) == ("DONE", "1 of 1 agents have it.")
    assert backend.has_image(f"{registry.address}/pin@{digest}")
    basic = [path for path, authorization in registry.asked if authorization.startswith("Basic")]
    assert basic and all(path.startswith("/token?") for path in basic)
    job = carry_out(cast, image, agent, pulls)
    assert job.result["parts"][0]["message"] == "It was there already."


def carry_out(cast: Cast, image: Any, agent: Agent, pulls: Pulls) -> BackgroundJob:
    job = start_pull(cast.dana, image, agents=[agent], groups=[], now=timezone.now())
    (order,) = chores_of([agent.pk])[agent.pk].pulls
    pulls._fetch(Claim(order.pull_id, 0, "fetch"))
    job.refresh_from_db()
    return job
