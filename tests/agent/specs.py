"""Kernel specs for tests of the node."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from backendai.base.wire.messages import KernelSpec

TINY_IMAGE = "local/backendai-test:tiny"


def make_spec(**over: Any) -> KernelSpec:
    """Return the spec of a small interactive kernel; every field can be given instead."""
    fields: dict[str, Any] = {
        "deployment": "test",
        "kernel_id": uuid4(),
        "session_id": uuid4(),
        "generation": 1,
        "agent": "n1",
        "session_name": "demo",
        "image": TINY_IMAGE,
        "slots": {"cpu": "0.5", "mem": str(64 * 2**20)},
        "shm_bytes": 16 * 2**20,
        "pids": 128,
    }
    return KernelSpec(**fields | over)
