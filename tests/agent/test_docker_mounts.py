"""Folders in containers: written in one, read in the next, kept when both are gone, and in no image that is saved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.base import BackendError, KernelGone, StartFailed
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.paths.storage_layout import MARKER
from backendai.base.wire.images import CommitSpec
from backendai.base.wire.mounts import MountSpec
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.test_mounts import mount_of, mounted_below
from tests.mount_tools import folder_on_disk, root_on_disk

pytestmark = pytest.mark.docker


@pytest.fixture
def root(tmp_path: Path, deployment: str) -> Path:
    tmp_path.chmod(0o711)
    return root_on_disk(tmp_path / "storage", deployment=deployment)


@pytest.fixture
def backend(deployment: str, tmp_path: Path, root: Path) -> Iterator[DockerBackend]:
    hosts = StorageHosts({"local": root}, (), deployment)
    backend = DockerBackend(tmp_path / "n1", deployment=deployment, agent="n1", hosts=hosts)
    backend.setup()
    yield backend
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    backend.sweep(set())
    backend.close()
    assert mounted_below(tmp_path) == []


@pytest.fixture
def folder(root: Path) -> UUID:
    made = uuid4()
    folder_on_disk(root, made, uid=1000)
    return made


def data_of(root: Path, folder: UUID) -> Path:
    return root / folder.hex[:2] / str(folder) / "data"


def test_what_one_kernel_writes_the_next_reads_under_an_alias(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, root: Path, folder: UUID
) -> None:
    first = new_spec(mounts=[mount_of(folder)], scratch_bytes=16 * 2**20)
    backend.start(first)
    code, output = shell(engine, first.kernel_id, "echo hello >data/file; mkdir data/deep; stat -c %u data/file; pwd")
    assert (code, output) == (0, f"{1000}\n/home/work\n")
    view = mount_of(folder, "/data/alias", rights="view")
    second = new_spec(mounts=[view], start_in="/data/alias")
    backend.start(second)
    code, output = shell(engine, second.kernel_id, "echo x >>file; rm -rf file deep")
    assert output.count("Read-only file system") >= 2
    code, output = shell(engine, second.kernel_id, "pwd; cat file; ls")
    assert (code, output) == (0, "/data/alias\nhello\ndeep\nfile\n")
    for spec in (first, second):
        backend.remove(spec.kernel_id)
    assert (data_of(root, folder) / "file").read_text() == "hello\n" and (data_of(root, folder) / "deep").is_dir()
    assert not list((backend._mounts.root).iterdir()) and not list((backend._data / "scratch").glob("*-*-*-*-*"))


def test_a_mount_below_the_home_is_neither_deleted_nor_counted_with_it(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, root: Path, folder: UUID, tmp_path: Path
) -> None:
    """``rm --one-file-system`` and ``du -x`` do not stop at a bind of the same disk."""
    (data_of(root, folder) / "big").write_bytes(os.urandom(2**20))
    backend._scratch._loops = False  # homes and folders lie on one disk
    spec = new_spec(mounts=[mount_of(folder, "/home/work/a/b")], scratch_bytes=64 * 2**10)
    backend.start(spec)
    assert shell(engine, spec.kernel_id, "ls a/b; touch a/mine")[1] == "big\n"
    assert backend._scratch.over_limit() == []
    backend.remove(spec.kernel_id)
    assert (data_of(root, folder) / "big").stat().st_size == 2**20


def test_a_killed_agent_leaves_mounts_that_the_next_one_takes_away(
    backend: DockerBackend, new_spec: NewSpec, root: Path, folder: UUID, deployment: str, tmp_path: Path
) -> None:
    (data_of(root, folder) / "file").write_text("kept")
    spec = new_spec(mounts=[mount_of(folder)])
    backend.start(spec)
    backend._mounts.prepare(dead := new_spec(mounts=[mount_of(folder)]), backend.mount_rules())
    hosts = StorageHosts({"local": root}, (), deployment)
    later = DockerBackend(tmp_path / "n1", deployment=deployment, agent="n1", hosts=hosts)
    later.sweep({spec.kernel_id})
    assert later.start(spec).adopted
    assert not (backend._mounts.root / str(dead.kernel_id)).exists()
    later.remove(spec.kernel_id)
    assert (data_of(root, folder) / "file").read_text() == "kept"
    later.close()


def test_a_kernel_does_not_start_without_its_folder(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, root: Path, folder: UUID
) -> None:
    spec = new_spec(mounts=[mount_of(folder)])
    backend.start(spec)
    (root / MARKER).rename(root / "away")
    with pytest.raises(StartFailed) as caught:
        backend.start(new_spec(mounts=[mount_of(folder)]))
    assert caught.value.code == "storage-missing"
    assert backend.start(spec).adopted  # what runs already is not ended by it
    assert [kernel.kernel_id for kernel in backend.kernels()] == [spec.kernel_id]


def test_a_kernel_starts_without_automatic_folders_and_says_so_until_its_end(
    backend: DockerBackend, new_spec: NewSpec, root: Path, folder: UUID
) -> None:
    (root / MARKER).rename(root / "away")
    spec = new_spec(mounts=[mount_of(folder, "/home/work/.cache", is_automatic=True)])
    for is_adopted in (False, True):
        assert backend.start(spec).adopted is is_adopted
        assert backend.left_out(spec.kernel_id).startswith("Not mounted on this agent: ")
    backend.remove(spec.kernel_id)
    assert backend.left_out(spec.kernel_id) == ""


def test_a_kernel_whose_mounts_are_not_as_ordered_is_ended(
    backend: DockerBackend, new_spec: NewSpec, folder: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.agent.backends.docker.create.body_of", lambda binds: [])
    with pytest.raises(StartFailed, match="not mounted on /home/work/data"):
        backend.start(new_spec(mounts=[mount_of(folder)]))
    assert backend.kernels() == []


def test_a_saved_image_leaves_folders_out(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, folder: UUID
) -> None:
    spec = new_spec(mounts=[mount_of(folder), MountSpec(**mount_of(folder, "/data").model_dump())])
    backend.start(spec)
    shell(engine, spec.kernel_id, "echo secret >/data/file; echo mine >/tmp/x")
    reference = f"local/mounts-test:{uuid4().hex[:8]}"
    commit = CommitSpec(kernel_id=spec.kernel_id, generation=1, reference=reference)
    backend.commit(commit)
    try:
        later = new_spec(image=commit.reference)
        backend.start(later)
        assert shell(engine, later.kernel_id, "ls -A /data /home/work; cat /data/file")[1].count("secret") == 0
    finally:
        backend.remove(later.kernel_id)
        engine.remove_image(commit.reference, force=True)


def test_a_running_kernel_is_cut_off_from_a_folder_and_goes_on(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, root: Path, folder: UUID
) -> None:
    other = uuid4()
    (folder_on_disk(root, other, uid=1000) / "mine").write_text("mine")
    spec = new_spec(mounts=[mount_of(folder, "/home/work/a/b"), mount_of(other, "/home/work/other")])
    backend.start(spec)
    holds = "exec 3>a/b/held; mv a moved; (cd moved/b; exec 3>&-; sleep 600 & echo $! >~/standing); "
    holds += "sleep 600 3>&3 & echo $! >~/holding"
    assert shell(engine, spec.kernel_id, holds)[0] == 0
    assert (data_of(root, folder) / "held").exists()
    assert backend.cut_folder(spec.kernel_id, folder) == 2, "one stands in it, one holds a file"
    alive = "kill -0 $(cat ~/standing) 2>&1; kill -0 $(cat ~/holding) 2>&1; ls moved/b; cat other/mine"
    output = shell(engine, spec.kernel_id, alive)[1]
    assert output.count("No such process") == 2 and output.endswith("mine") and "held" not in output
    assert (data_of(root, folder) / "held").exists(), "nothing of the folder is deleted"
    assert [one.running for one in backend.kernels() if one.kernel_id == spec.kernel_id] == [True]
    with pytest.raises(BackendError, match="No program of this session sees the folder"):
        backend.cut_folder(spec.kernel_id, folder)
    with pytest.raises(KernelGone):
        backend.cut_folder(uuid4(), folder)
