"""Scratch folders of containers: hard limits by loop devices, and nothing left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.disk.scratch import Scratch
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.prerequisites import need_program, need_root

pytestmark = pytest.mark.docker
MIB = 2**20


@pytest.fixture
def scratch(backend: DockerBackend) -> Scratch:
    need_root("only root mounts file systems")
    for program, package in (("mkfs.ext4", "e2fsprogs"), ("mount", "mount"), ("umount", "mount")):
        need_program(program, package)
    if not Path("/dev/loop-control").exists():
        pytest.skip(
            "this machine's Linux kernel has no loop devices: modprobe loop, on the host if this is a container"
        )
    assert backend._scratch.is_limited, (
        "the engine must see what the tests mount: unset DOCKER_HOST, and run them beside it"
    )
    return backend._scratch


@pytest.fixture
def plain(tmp_path: Path) -> Scratch:
    """Scratch folders of an agent that cannot mount."""
    return Scratch(tmp_path / "plain", None)


def left_in(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if not path.name.startswith("blank-")]


def test_it_stops_a_kernel_from_filling_the_disk(
    backend: DockerBackend, scratch: Scratch, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(scratch_bytes=16 * MIB)
    backend.start(spec)
    code, output = shell(engine, spec.kernel_id, "dd if=/dev/zero of=/home/work/big bs=1M count=64")
    assert code != 0 and "No space left" in output
    assert (scratch.root / str(spec.kernel_id) / "home" / "big").stat().st_size < 16 * MIB
    assert shell(engine, spec.kernel_id, "ls /home/work")[1] == "big\n"


def test_it_leaves_no_mount_and_no_file_behind(backend: DockerBackend, scratch: Scratch, new_spec: NewSpec) -> None:
    spec = new_spec(scratch_bytes=16 * MIB)
    backend.start(spec)
    backend.stop(spec.kernel_id, grace=2)
    backend.remove(spec.kernel_id)
    assert left_in(scratch.root) == []
    assert str(spec.kernel_id) not in Path("/proc/mounts").read_text()
    loops = subprocess.run(["losetup", "--list", "--noheadings", "-O", "BACK-FILE"], capture_output=True, text=True)
    assert str(spec.kernel_id) not in loops.stdout


def test_it_keeps_what_a_kernel_wrote_when_it_is_adopted(
    backend: DockerBackend, reopened: Callable[[], DockerBackend], engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(scratch_bytes=16 * MIB)
    backend.start(spec)
    shell(engine, spec.kernel_id, "echo precious >/home/work/kept")
    assert reopened().start(spec).adopted
    assert shell(engine, spec.kernel_id, "cat /home/work/kept")[1] == "precious\n"


def test_it_gives_a_new_generation_an_empty_folder(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(scratch_bytes=16 * MIB)
    backend.start(spec)
    shell(engine, spec.kernel_id, "touch /home/work/old")
    backend.start(spec.model_copy(update={"generation": 2}))
    assert shell(engine, spec.kernel_id, "ls /home/work")[1] == ""


def test_it_counts_temporary_files_against_the_same_limit(
    backend: DockerBackend, scratch: Scratch, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(scratch_bytes=16 * MIB)
    backend.start(spec)
    for folder in ("/tmp", "/var/tmp"):
        code, output = shell(engine, spec.kernel_id, f"dd if=/dev/zero of={folder}/big bs=1M count=64")
        assert code != 0 and "No space left" in output
    assert shell(engine, spec.kernel_id, "ls -a /home/work")[1].split() == [".", ".."]


def test_it_counts_what_kernels_may_still_write(scratch: Scratch, tmp_path: Path) -> None:
    kernel_id, limits = uuid4(), {}
    folder = scratch.prepare(kernel_id, 16 * MIB)
    limits[kernel_id] = 16 * MIB
    before = scratch.promised(limits, tmp_path)
    (folder / "home" / "file").write_bytes(b"x" * 5 * MIB)
    subprocess.run(["sync", "-f", folder], check=True)
    assert 14 * MIB < before < 16 * MIB
    assert before - scratch.promised(limits, tmp_path) >= 5 * MIB
    assert scratch.promised(limits, Path("/proc")) == 0, "that is another disk"
    scratch.remove(kernel_id)


def test_it_mounts_a_file_system_again_after_a_restart_of_the_machine(scratch: Scratch) -> None:
    kernel_id = uuid4()
    folder = scratch.prepare(kernel_id, 16 * MIB)
    (folder / "kept").write_text("precious")
    subprocess.run(["umount", folder], check=True)
    assert (scratch.prepare(kernel_id, 16 * MIB) / "kept").read_text() == "precious"
    scratch.remove(kernel_id)


def test_the_kernel_writes_no_zeros_over_what_nobody_has_used(scratch: Scratch) -> None:
    kernel_id = uuid4()
    folder = scratch.prepare(kernel_id, 16 * MIB)
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    (options,) = [options for _, where, _, options, *_ in mounts if where == str(folder)]
    assert "noinit_itable" in options.split(",")
    scratch.remove(kernel_id)


def test_it_sweeps_away_folders_without_a_kernel(
    backend: DockerBackend, scratch: Scratch, engine: APIClient, new_spec: NewSpec
) -> None:
    lost, in_the_making, running = new_spec(scratch_bytes=16 * MIB), uuid4(), new_spec(scratch_bytes=16 * MIB)
    for spec in (lost, running):
        backend.start(spec)
    engine.remove_container(f"krn-{lost.kernel_id}", force=True)
    scratch.prepare(in_the_making, 16 * MIB)
    backend.sweep({in_the_making, running.kernel_id})
    left = left_in(scratch.root)
    assert {name.partition(".")[0] for name in left} == {str(in_the_making), str(running.kernel_id)}
    assert shell(engine, running.kernel_id, "touch /home/work/alive")[0] == 0
    scratch.remove(in_the_making)


def test_it_makes_a_plain_folder_without_loop_devices_and_watches_its_size(plain: Scratch) -> None:
    modest, greedy = uuid4(), uuid4()
    assert not plain.is_limited
    for kernel_id in (modest, greedy):
        folder = plain.prepare(kernel_id, MIB)
        assert not folder.is_mount()
        (folder / "deep").mkdir()
    (plain.root / str(modest) / "deep" / "file").write_bytes(b"x" * 100)
    (plain.root / str(greedy) / "deep" / "file").write_bytes(b"x" * 2 * MIB)
    assert [over[0] for over in plain.over_limit()] == [greedy]
    plain.sweep({modest})
    assert plain.over_limit() == []
    plain.remove(modest)
    assert left_in(plain.root) == []


def test_it_gives_a_plain_folder_to_the_user_of_the_kernel(plain: Scratch) -> None:
    need_root("only root gives files away")
    assert (plain.prepare(uuid4(), 0) / "home").stat().st_uid == 1000


def test_it_follows_no_link_out_of_a_folder_that_it_removes(plain: Scratch, tmp_path: Path) -> None:
    kernel_id = uuid4()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (plain.prepare(kernel_id, 0) / "link").symlink_to(precious)
    plain.remove(kernel_id)
    assert (precious / "file").exists()
