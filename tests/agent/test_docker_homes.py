"""A stored home in containers: kept when its kernel has ended, and there before the first program of the next one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.base import KernelGone, StartFailed
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.wire.homes import StoredHome, StoreWork
from backendai.base.wire.messages import HomeFile, KernelSpec
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.test_mounts import mount_of, mounted_below
from tests.mount_tools import folder_on_disk, root_on_disk

pytestmark = pytest.mark.docker

FILE = "home-main1.tar"


@pytest.fixture
def hosts(tmp_path: Path, deployment: str) -> StorageHosts:
    tmp_path.chmod(0o711)
    return StorageHosts({"local": root_on_disk(tmp_path / "storage", deployment=deployment)}, (), deployment)


@pytest.fixture
def backend(deployment: str, tmp_path: Path, hosts: StorageHosts) -> Iterator[DockerBackend]:
    backend = DockerBackend(tmp_path / "n1", deployment=deployment, agent="n1", hosts=hosts)
    backend.setup()
    yield backend
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    backend.sweep(set())
    backend.close()
    assert mounted_below(tmp_path) == []


@pytest.fixture
def folder(hosts: StorageHosts) -> UUID:
    made = uuid4()
    folder_on_disk(hosts.paths["local"], made, uid=1000)
    return made


@pytest.fixture
def place(hosts: StorageHosts) -> StoredHome:
    made = uuid4()
    folder_on_disk(hosts.paths["local"], made, uid=1000)
    return StoredHome(host="local", folder_id=made, folder_name="homes", file=FILE)


def archive_of(hosts: StorageHosts, place: StoredHome) -> Path:
    return hosts.paths["local"] / place.folder_id.hex[:2] / str(place.folder_id) / "data" / FILE


def stored(backend: DockerBackend, spec: KernelSpec, place: StoredHome) -> None:
    """Freeze the kernel, store its home and end it."""
    backend.freeze(spec.kernel_id)
    work = StoreWork(kernel_id=spec.kernel_id, generation=spec.generation, home=place, timeout=60.0)
    backend.store_home(work, lambda _: None)
    backend.stop(spec.kernel_id, grace=0)
    backend.remove(spec.kernel_id)


def test_the_next_kernel_begins_with_the_home_of_the_one_before(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, hosts: StorageHosts, place: StoredHome, folder: UUID
) -> None:
    files = [HomeFile(path=".ssh/authorized_keys", mode=0o600, content="old"), HomeFile(path=".rc", content="first")]
    spec = new_spec(
        mounts=[mount_of(folder)], scratch_bytes=16 * 2**20, files=files, bootstrap="#!/bin/sh\necho once >>runs\n"
    )
    backend.start(spec)
    command = (
        "echo of the folder >data/theirs; echo changed >.rc; mkdir -p venv/bin; ln -s /bin/sh venv/bin/python; cat runs"
    )
    assert shell(engine, spec.kernel_id, command) == (0, "once\n")
    stored(backend, spec, place)
    assert archive_of(hosts, place).stat().st_uid == 1000
    files[0] = HomeFile(path=".ssh/authorized_keys", mode=0o600, content="new")
    again = spec.model_copy(update={"generation": 2, "home": place, "files": files})
    backend.start(again)
    asked = "cat .ssh/authorized_keys; echo; cat .rc runs data/theirs; readlink venv/bin/python; ls -A; id -u"
    code, output = shell(engine, again.kernel_id, asked)
    assert (code, output.splitlines()) == (0, ["new", "changed", "once", "of the folder", "/bin/sh",
        ".bootstrap.sh", ".rc", ".ssh", "data", "runs", "venv", "1000"])  # fmt: skip
    archive_of(hosts, place).unlink()
    assert backend.start(again).adopted and shell(engine, again.kernel_id, "cat .rc")[0] == 0, (
        "it is not unpacked again"
    )


def test_a_home_of_an_interrupted_start_is_not_taken_for_the_stored_one(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, place: StoredHome
) -> None:
    spec = new_spec()
    backend.start(spec)
    shell(engine, spec.kernel_id, "echo newest >file")
    stored(backend, spec, place)
    backend._scratch.prepare(spec.kernel_id, 0, lambda home: (home / "stale").touch())
    backend.start(spec.model_copy(update={"home": place, "generation": 2}))
    assert shell(engine, spec.kernel_id, "ls -A; cat file") == (0, "file\nnewest\n")


@pytest.mark.parametrize("code", ["home-missing", "home-too-large"])
def test_a_home_that_cannot_be_unpacked_fails_the_start_and_leaves_nothing(
    code: str, backend: DockerBackend, engine: APIClient, new_spec: NewSpec, place: StoredHome
) -> None:
    if code == "home-too-large":
        large = new_spec(scratch_bytes=32 * 2**20)
        backend.start(large)
        shell(engine, large.kernel_id, "head -c 9000000 /dev/urandom >big")
        stored(backend, large, place)
    spec = new_spec(home=place, scratch_bytes=4 * 2**20)
    with pytest.raises(StartFailed) as caught:
        backend.start(spec)
    assert caught.value.code == code
    assert backend.kernels() == [] and not list((backend._data / "scratch").glob(f"{spec.kernel_id}*"))


def test_a_frozen_kernel_has_no_program_that_answers_and_a_full_folder_lets_it_go_on(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, hosts: StorageHosts, place: StoredHome
) -> None:
    spec = new_spec(session_type="batch", command="while :; do date >now; sleep 0.1; done")
    backend.start(spec)
    backend.freeze(spec.kernel_id)
    now = backend._scratch.home(spec.kernel_id) / "now"
    before = now.stat().st_mtime_ns
    time.sleep(0.5)
    assert now.stat().st_mtime_ns == before
    with pytest.raises(KernelGone):
        backend._engine.make_exec(spec.kernel_id, ["true"])
    work = StoreWork(kernel_id=spec.kernel_id, generation=1, home=place, most_bytes=512, timeout=60.0)
    with pytest.raises(StartFailed, match="would be larger than"):
        backend.store_home(work, lambda _: None)
    backend.thaw(spec.kernel_id)
    assert os.listdir(archive_of(hosts, place).parent) == []
    time.sleep(0.5)
    assert now.stat().st_mtime_ns > before
