"""``bin/clean-engine`` ends the sessions of one platform without the platform."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from tests.agent.contract_tools import NewSpec
from tests.agent.specs import TINY_IMAGE, make_spec

pytestmark = pytest.mark.docker
COMMAND = Path(__file__).parents[2] / "bin/clean-engine"


def clean(*deployment: str) -> str:
    return subprocess.run([COMMAND, *deployment], capture_output=True, text=True, check=True).stdout


def test_it_ends_what_one_platform_left_and_nothing_else(
    backend: DockerBackend, neighbour: DockerBackend, engine: APIClient, deployment: str, new_spec: NewSpec
) -> None:
    backend.start(new_spec())
    backend.start(new_spec(cluster_size=2))
    other = make_spec(deployment=neighbour._engine.deployment, agent="n1")
    neighbour.start(other)
    # As a container from an image that a session was saved as.
    labels = {"backendai.deployment": deployment, "backendai.kernel": str(uuid4())}
    stranger = engine.create_container(TINY_IMAGE, name=f"of-somebody-{uuid4().hex}", labels=labels)["Id"]
    try:
        assert f"{deployment}: 2 kernels, 2 networks\n" in clean()
        assert clean(deployment) == "Removed: 2 kernels, 2 networks.\n"
        assert deployment not in clean()
        left = engine.containers(all=True, filters={"label": f"backendai.deployment={deployment}"})
        assert [one["Id"] for one in left] == [stranger]
        assert [one.kernel_id for one in neighbour.kernels() if one.running] == [other.kernel_id]
    finally:
        engine.remove_container(stranger, force=True)
