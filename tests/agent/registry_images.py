"""Images that a real engine can fetch from the small registry of the tests."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

from tests.agent.images import _archive, _busybox_files
from tests.catalog.fake_registry import FakeRegistry

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
