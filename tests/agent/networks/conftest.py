"""Agents that keep networks ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.networks.prepared import networks as prepared_networks
from tests.agent.networks.warm_tools import Reopen, agents_with_warm_networks, filled


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pool fill itself at once when nothing is under way."""
    monkeypatch.setattr(prepared_networks, "CALM_SECONDS", 0.0)


@pytest.fixture
def reopened(deployment: str, tmp_path: Path) -> Iterator[Reopen]:
    """Makes instances of ``backend``: the agent ``n1``, ready to work."""
    with agents_with_warm_networks(deployment, tmp_path) as reopen:
        yield reopen


@pytest.fixture
def backend(reopened: Reopen) -> DockerBackend:
    """The agent ``n1``, with all its networks ready."""
    return filled(reopened())
