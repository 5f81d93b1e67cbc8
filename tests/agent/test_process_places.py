"""Where native kernels of root have their folders when nothing mounts them: closed data folders, and what is left."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native import places as process_places
from backendai.agent.backends.native import start as process_start
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.native.sandbox import Isolation, probe
from backendai.agent.loop.machine import Machine
from tests.agent.contract_tools import ended_of
from tests.agent.prerequisites import need_root
from tests.agent.specs import make_spec

ALONE = Isolation(None, "the test wants none", root=True)
new_spec = partial(make_spec, image=IMAGE)


@pytest.fixture(autouse=True)
def root() -> None:
    need_root("only kernels of root are users of their own")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands for /var/lib; everybody may pass through it."""
    folder = Path(tempfile.mkdtemp(prefix="places-", dir="/tmp"))
    folder.chmod(0o755)
    monkeypatch.setattr(process_places, "BASES", (folder / "absent", folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder below a closed one, as in /root."""
    home = tmp_path / "root"
    home.mkdir(mode=0o700)
    folder = home / "portal" / "var"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_start, "probe", lambda: ALONE)


def opened(data: Path) -> NativeBackend:
    return NativeBackend(data, deployment="test", agent="n1")


def said_by(backend: NativeBackend, command: str) -> str:
    """Return what a batch kernel printed; it is removed."""
    spec = new_spec(session_type="batch", command=command)
    backend.start(spec)
    ended_of(backend, spec.kernel_id)
    said = backend.read_log(spec.kernel_id, limit=100_000)[0].decode()
    backend.remove(spec.kernel_id)
    return said


def folder_of(backend: NativeBackend, kernel_id: UUID) -> Path:
    return backend._places.find(kernel_id).path


@pytest.mark.usefixtures("alone")
def test_it_runs_kernels_though_the_data_folder_is_closed(data: Path, base: Path) -> None:
    modes = {path: path.stat().st_mode for path in (data, *data.parents)}
    backend = opened(data)
    assert backend.fault() == ""
    assert said_by(backend, "touch here && pwd && echo $((6*7))").split()[-1] == "42"
    assert modes == {path: path.stat().st_mode for path in modes}
    assert [note.code for note in backend.notes() if "starts-nothing" in note.code] == []
    assert backend.storage() == [data, backend._places.new]
    backend.close()
    assert list(base.iterdir()) == []
    assert not (data / "kernels.json").exists()


@pytest.mark.usefixtures("alone")
def test_kernels_find_nothing_in_the_closed_folder_and_nothing_of_each_other(data: Path, base: Path) -> None:
    (data / "secrets.json").write_text("{}")
    backend = opened(data)
    neighbour = new_spec(environ={"TOKEN": "very-secret"})
    backend.start(neighbour)
    other = folder_of(backend, neighbour.kernel_id)
    looks = [f"ls {data}", f"cat {data}/secrets.json", f"ls {other.parent}", f"ls {other}", f"ls {other}/home"]
    looks += [f"cat {other}/{name}" for name in ("launch.json", "spec.json", "runner.json", "runner.log", "output.log")]
    looks += [f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{other}/door.sock\")'"]
    said = said_by(backend, "; ".join(f"{{ {look}; }} 2>&1" for look in looks))
    assert said.count("Permission denied") == len(looks), said
    backend.remove(neighbour.kernel_id)
    backend.close()


@pytest.mark.usefixtures("alone")
def test_the_next_agent_finds_kernels_wherever_they_were_started(
    data: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, inside = new_spec(), new_spec()
    opened(data).start(outside)
    with monkeypatch.context() as patch:
        shut_in = probe()
        if shut_in.bwrap is None:
            pytest.skip(f"this machine allows no sandbox: {shut_in.why_not}")
        patch.setattr(process_start, "probe", lambda: shut_in)
        sandboxed = opened(data)
        assert sandboxed.start(outside).adopted
        assert not sandboxed.start(inside).adopted
    backend = opened(data)
    assert {kernel.kernel_id for kernel in backend.kernels() if kernel.running} == {outside.kernel_id, inside.kernel_id}
    assert folder_of(backend, inside.kernel_id).parent == data / "kernels"
    assert folder_of(backend, outside.kernel_id).parent.parent == base
    backend.close()
    assert len(list(base.iterdir())) == 1  # it ended, and the portal has not heard of that yet
    for spec in (outside, inside):
        backend.remove(spec.kernel_id)
    assert list(base.iterdir()) == []


@pytest.mark.usefixtures("alone")
def test_kernels_stay_in_a_data_folder_that_an_administrator_has_opened(base: Path) -> None:
    data = base / "opened"
    data.mkdir(mode=0o755)
    backend = opened(data)
    assert backend._places.new == data / "kernels"
    assert said_by(backend, "echo $((6*7))").split()[-1] == "42"
    backend.close()
    assert [path.name for path in base.iterdir()] == ["opened"]


@pytest.mark.usefixtures("alone")
def test_a_strict_umask_keeps_no_kernel_out(data: Path, base: Path) -> None:
    former = os.umask(0o077)
    try:
        backend = opened(data)
        assert said_by(backend, "echo $((6*7))").split()[-1] == "42"
    finally:
        os.umask(former)
    assert stat.S_IMODE(backend._places.new.stat().st_mode) == 0o711
    backend.close()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("damage", ["others-write", "link", "gone"])
def test_a_recorded_folder_that_is_not_ours_alone_is_not_used(data: Path, base: Path, damage: str) -> None:
    first = opened(data)._places.new
    first.rmdir()
    if damage == "others-write":
        first.mkdir()
        first.chmod(0o777)
    elif damage == "link":
        first.symlink_to("/tmp")
    second = opened(data)._places.new
    assert second != first and second.parent == base
    assert json.loads((data / "kernels.json").read_text()) == {"folders": [str(second)]}


@pytest.mark.usefixtures("alone")
def test_an_agent_that_can_start_nothing_says_so_until_it_can(data: Path, base: Path) -> None:
    base.chmod(0o700)
    backend = opened(data)
    with pytest.raises(StartFailed, match="cannot reach"):
        backend.start(new_spec())
    (note,) = [note for note in backend.notes() if note.code == "process-starts-nothing"]
    assert f"{data}/kernels (Permission denied)" in note.message and str(base) in note.message
    assert "chmod o+x" in note.fix and "apt install bubblewrap" in note.fix
    machine = Machine(backend, Accelerators(), offered=lambda capacity: capacity, gateway_url="")
    assert machine.describe([], engine_fault="", draining=False, wait=0.0).fault == note.message
    assert [path for path in base.iterdir()] == []
    base.chmod(0o755)
    machine.images_changed()
    assert machine.describe([], engine_fault="", draining=False, wait=0.0).fault == ""
    backend.close()


def test_an_agent_whose_root_may_not_change_users_says_so(
    data: Path, base: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:

    def forbidden(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(process_places.subprocess, "run", forbidden)
    backend = opened(data)
    assert "Operation not permitted" in backend.fault()
    assert any("CAP_SETUID" in note.fix for note in backend.notes())
    backend.close()
