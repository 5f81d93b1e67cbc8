"""Fixtures of the tests with a real container engine; everything they make bears a deployment of this run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import clear
from tests.agent.images import ensure_tiny_image
from tests.agent.specs import make_spec


@pytest.fixture(scope="module")
def engine() -> Iterator[APIClient]:
    """The container engine, with the tiny image in it."""
    client = APIClient()
    ensure_tiny_image(client)
    yield client
    client.close()


@pytest.fixture(scope="module")
def deployment(engine: APIClient) -> Iterator[str]:
    """A deployment's name; whatever is left of it goes at the end."""
    name = f"test-{uuid4().hex[:8]}"
    yield name
    clear(engine, name)


@pytest.fixture
def backend(deployment: str, tmp_path: Path) -> Iterator[DockerBackend]:
    """The agent ``n1`` of the deployment."""
    backend = DockerBackend(tmp_path / "n1", deployment=deployment, agent="n1")
    backend.setup()
    yield backend
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    backend.sweep(set())
    backend.close()


@pytest.fixture
def neighbour(engine: APIClient, tmp_path: Path) -> Iterator[DockerBackend]:
    """An agent of another deployment."""
    name = f"test-{uuid4().hex[:8]}"
    neighbour = DockerBackend(tmp_path / "other", deployment=name, agent="n1")
    yield neighbour
    neighbour.close()
    clear(engine, name)


@pytest.fixture
def reopened(deployment: str, tmp_path: Path) -> Callable[[], DockerBackend]:
    """Another instance of ``backend``, as after a kill of the agent."""
    return partial(DockerBackend, tmp_path / "n1", deployment=deployment, agent="n1")


@pytest.fixture
def new_spec(deployment: str) -> NewSpec:
    """Specs of the tiny image for ``backend``."""
    return partial(make_spec, deployment=deployment, agent="n1")
