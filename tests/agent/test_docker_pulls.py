"""An image of a registry with a password comes onto a node of the real engine, by the portal's word alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone
from docker import APIClient

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Registry
from backendai.domain.catalog.pulls import start_pull
from backendai.domain.catalog.registries import write_registry
from tests.agent.next_door import NextDoor
from tests.agent.registry_images import add_image
from tests.cast import Cast
from tests.catalog.fake_registry import ACCOUNT, FakeRegistry, serving
from tests.factories import make_agent, make_image

pytestmark = [pytest.mark.docker, pytest.mark.django_db]


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

    node = NextDoor(make_agent(), backend)
    account: dict[str, Any] = {"username": ACCOUNT[0], "password": "wrong"}
    lab = write_registry(None, Registry(), {"name": "lab", "url": f"http://{registry.address}"} | account)
    job = carry_out(cast, image, node)
    assert (job.status, node.said[-1].state) == ("FAILED", "FAILED")
    assert "requires credentials, or rejected the configured ones" in job.result["parts"][0]["message"]

    write_registry(None, lab, {"password": ACCOUNT[1]})
    job = carry_out(cast, image, node)
    assert (job.status, job.message) == ("DONE", "1 of 1 agents have it.")
    assert backend.has_image(f"{registry.address}/pin@{digest}")
    basic = [path for path, authorization in registry.asked if authorization.startswith("Basic")]
    assert basic and all(path.startswith("/token?") for path in basic)
    job = carry_out(cast, image, node)
    assert job.result["parts"][0]["message"] == "It was there already."


def carry_out(cast: Cast, image: Any, node: NextDoor) -> BackgroundJob:
    job = start_pull(cast.dana, image, agents=[node.agent], groups=[], now=timezone.now())
    assert node.work() == 1
    job.refresh_from_db()
    return job
