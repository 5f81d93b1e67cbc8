"""A kernel starts exactly the image that its session was launched with, whatever its name stands for by now."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from docker import APIClient

from backendai.agent.backends.base import ImageNotFound
from backendai.agent.backends.docker import DockerBackend
from tests.agent.contract_tools import NewSpec
from tests.agent.images import _archive, _busybox_files
from tests.catalog.fake_registry import FakeRegistry, serving

pytestmark = [pytest.mark.docker]
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG, LAYER = "application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar.gzip"


def add_image(registry: FakeRegistry, tag: str, version: str) -> str:
    """Let the tag stand for an image of this version and return its digest."""
    plain = _archive(_busybox_files())
    packed = gzip.compress(plain, mtime=0)
    layer = registry.put(LAYER, packed)
    config: dict[str, Any] = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin", f"VERSION={version}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
    }
    body = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": registry.put(CONFIG, body), "size": len(body)},
        "layers": [{"mediaType": LAYER, "digest": layer, "size": len(packed)}],
    }
    digest = registry.put(MANIFEST, manifest)
    registry.tag("pin", tag, digest)
    return digest


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
