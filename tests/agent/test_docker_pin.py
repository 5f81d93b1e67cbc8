"""A kernel starts exactly the image that its session was launched with, whatever its name stands for by now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from docker import APIClient

from backendai.agent.backends.base import ImageNotFound
from backendai.agent.backends.docker.backend import DockerBackend
from tests.agent.contract_tools import NewSpec
from tests.agent.registry_images import add_image
from tests.catalog.fake_registry import FakeRegistry, serving

pytestmark = [pytest.mark.docker]


@pytest.fixture
def registry(engine: APIClient) -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        yield registry
        for image in engine.images(name=f"{registry.address}/pin"):
            engine.remove_image(image["Id"], force=True)


def test_an_older_digest_is_fetched_and_started_although_the_tag_has_moved_on(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, registry: FakeRegistry
) -> None:
    first = add_image(registry, "1", "first")
    add_image(registry, "1", "second")
    name = f"{registry.address}/pin:1"
    backend.pull(name, timeout=60, progress=lambda *_: None)
    spec = new_spec(image=name, digest=first)
    with pytest.raises(ImageNotFound):
        backend.start(spec)
    backend.pull(spec.exact_image, timeout=60, progress=lambda *_: None)
    try:
        backend.start(spec)
        running = engine.inspect_container(f"krn-{spec.kernel_id}")["Config"]
        assert "VERSION=first" in running["Env"]
        seen = {sighting.reference: sighting.digest for sighting in backend.images()}
        assert seen[spec.exact_image] == first
        assert seen[name] != first
    finally:
        backend.remove(spec.kernel_id)
