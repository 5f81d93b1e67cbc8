"""Kernels under another runtime of the engine. A second name of runc stands for it: it has the border of none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import APIClient

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.settings.kernel_runtime import Runtime
from tests.agent.contract_tools import NewSpec, ended_of

pytestmark = pytest.mark.docker
_SECOND_NAME = "io.containerd.runc.v2"
_MIB = 2**20


@pytest.fixture
def under(backend: DockerBackend, deployment: str, tmp_path: Path) -> Iterator[dict[str, DockerBackend]]:
    """The same agent with a runtime that takes 32 MiB, and with one that the engine does not have."""
    runtimes = {"second": Runtime(_SECOND_NAME, 32 * _MIB), "absent": Runtime("kata-absent")}
    found = {
        name: DockerBackend(tmp_path / "n1", deployment=deployment, agent="n1", runtime=runtime)
        for name, runtime in runtimes.items()
    }
    yield found
    for one in found.values():
        one.close()


def test_a_kernel_runs_under_it_with_what_it_leaves_of_the_memory(
    under: dict[str, DockerBackend], engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(slots={"cpu": "1", "mem": str(128 * _MIB)}, session_type="batch", command="echo here; exit 3")
    under["second"].start(spec)
    host = engine.inspect_container(f"krn-{spec.kernel_id}")["HostConfig"]
    assert host["Runtime"] == _SECOND_NAME
    assert host["Memory"] == host["MemorySwap"] == 96 * _MIB
    assert ended_of(under["second"], spec.kernel_id).exit_code == 3


def test_a_kernel_with_less_memory_than_it_takes_is_refused_with_the_numbers(
    under: dict[str, DockerBackend], new_spec: NewSpec
) -> None:
    spec = new_spec(slots={"cpu": "1", "mem": str(80 * _MIB)})
    with pytest.raises(StartFailed) as refused:
        under["second"].start(spec)
    assert "takes 32 MiB" in str(refused.value) and "ask for 96 MiB" in str(refused.value)
    assert not under["second"].kernels()


def test_without_it_in_the_engine_nothing_starts_and_the_agent_says_so(
    under: dict[str, DockerBackend], new_spec: NewSpec
) -> None:
    with pytest.raises(StartFailed) as refused:
        under["absent"].start(new_spec())
    assert "kata-absent" in str(refused.value) and not under["absent"].kernels()
    assert {"runtime-missing", "runtime-border"} <= {note.code for note in under["absent"].notes()}
    assert "kata-absent" in under["absent"].fault() and under["second"].fault() == ""
