"""A Kubernetes backend on a scripted API, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backendai.agent.backends.kubernetes.api import feed as kubernetes_feed
from backendai.agent.backends.kubernetes.api.access import ApiAccess
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.settings.kubernetes import PoolSettings
from tests.agent.kubernetes_fake import Cluster, serving


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def backend(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesBackend]:
    monkeypatch.setattr(kubernetes_feed, "_LOOK_SECONDS", 0.2)
    with serving(cluster) as address:
        access = ApiAccess(address, "lab", None, lambda: "")
        backend = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1")
        yield backend
        backend.close()


def name_of(spec: Any) -> str:
    return f"krn-{spec.kernel_id}"
