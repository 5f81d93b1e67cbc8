"""Which backend a node takes when its container engine does not answer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.base import Backend
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.loop.choose import choose_backend
from backendai.agent.settings.config import read_settings
from backendai.agent.settings.credentials import Credentials
from backendai.agent.settings.marks import has_run_containers, is_marked_native, mark_native, note_containers
from backendai.ops.run import fleet, up
from backendai.ops.run.ports import PortClaims


def chosen(data: Path, backend: str) -> Backend:
    told = {"DOCKER_HOST": f"unix://{data}/absent.sock", "BACKENDAI_AGENT_BACKEND": backend}
    settings = read_settings(told, {"data": str(data), "name": "local"})
    return choose_backend(settings, Credentials("http://portal", "local", "node_x", "d", "key"), Accelerators())


def test_without_an_engine_a_new_node_runs_native_processes(tmp_path: Path) -> None:
    assert [chosen(tmp_path, "auto").name for _ in range(2)] == ["process", "process"]
    assert not has_run_containers(tmp_path)


def test_a_node_that_ran_containers_waits_for_its_engine(tmp_path: Path) -> None:
    note_containers(tmp_path)
    assert chosen(tmp_path, "auto").name == "docker"
    assert has_run_containers(tmp_path)


def test_only_who_asks_for_native_processes_gives_containers_up(tmp_path: Path) -> None:
    note_containers(tmp_path)
    assert chosen(tmp_path, "process").name == "process"
    assert chosen(tmp_path, "auto").name == "process"


@pytest.mark.parametrize(("ran_containers", "backend"), [(False, "process"), (True, "docker")])
def test_the_platform_of_one_machine_waits_too_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran_containers: bool, backend: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    folder = tmp_path / "agents" / "local"
    folder.mkdir(parents=True)
    if ran_containers:
        note_containers(folder)
    with closing(PortClaims()) as claims:
        choice = up._decide(up._parser().parse_args(["--data", str(tmp_path)]), claims)
    assert choice.backend == backend
    said = up.welcome(choice, None)
    assert "absent.sock" in said
    assert ("--backend process gives those up" in said) is ran_containers


@pytest.mark.parametrize(("kernels", "backend"), [((), "process"), (("a container",), "docker")])
def test_a_mark_puts_processes_in_the_place_of_containers_but_gives_none_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: tuple[str, ...], backend: str
) -> None:
    for name, answer in (("capacity", None), ("setup", None), ("kernels", kernels)):
        monkeypatch.setattr(DockerBackend, name, lambda self, answer=answer: answer)
    assert chosen(tmp_path, "docker").name == "docker"
    mark_native(tmp_path, wanted=True)
    assert chosen(tmp_path, "docker").name == backend
    assert has_run_containers(tmp_path), "they come back with the image"


def test_a_marked_node_without_its_engine_waits_for_it(tmp_path: Path) -> None:
    mark_native(tmp_path, wanted=True)
    assert chosen(tmp_path, "docker").name == "docker"


def test_an_operator_who_chooses_docker_takes_the_mark_away(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "local"
    folder.mkdir(parents=True)
    mark_native(folder, wanted=True)
    told = ("127.0.0.1", 18000, tmp_path, 1, "docker")
    fleet.agent_programs(fleet.Choice(*told, may_run_natively=True))
    assert is_marked_native(folder)
    fleet.agent_programs(fleet.Choice(*told))
    assert not is_marked_native(folder)
    assert "--may-run-natively" not in fleet.image_program(fleet.Choice(*told)).command
