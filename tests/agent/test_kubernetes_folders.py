"""Folders in pods of a real cluster: paths of the nodes and claims, read-only or not, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml

from backendai.agent.backends.base import BackendError, StartFailed
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.settings.kubernetes import PoolSettings, PoolStorage
from backendai.base.wire.mounts import MountSpec
from tests.agent.contract_tools import NewSpec, ended_of
from tests.agent.kubernetes_bed import ensure_bed, kubectl, namespace
from tests.agent.specs import make_spec
from tests.mount_tools import folder_on_disk, root_on_disk
from tests.patience import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.timeout(300)]
OWNER = 1000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return root_on_disk(tmp_path_factory.mktemp("nodes") / "storage", deployment="test", uid=OWNER)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[tuple[str, Path]]:
    """A namespace with a claim for the storage host, which lies on the node's disk."""
    ensure_bed()
    with namespace() as (name, said):
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": name,
                "hostPath": {"path": str(root.parent)},
            },
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "home"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        kubectl("-n", name, "apply", "-f", "-", text=yaml.safe_dump_all([volume, claim]))
        path = tmp_path_factory.mktemp("kubernetes") / "config"
        path.write_text(yaml.safe_dump(said))
        try:
            yield name, path
        finally:
            kubectl("delete", "persistentvolume", name, "--wait=false")


@pytest.fixture
def backend(place: tuple[str, Path], root: Path, tmp_path: Path) -> Iterator[KubernetesBackend]:
    """It has the storage hosts ``local`` and ``claimed``, which are one, and sees the first on its own machine."""
    storage = {"local": PoolStorage(path=str(root)), "claimed": PoolStorage(claim="home", folder=root.name)}
    pool = PoolSettings(reach="direct", storage=storage)
    hosts = StorageHosts({"local": root}, (), "test")
    backend = KubernetesBackend(tmp_path, find_access(place[1]), pool, deployment="test", agent="n1", hosts=hosts)
    yield backend
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    backend.close()


@pytest.fixture
def new_spec() -> NewSpec:
    return partial(make_spec, deployment="test", agent="n1", slots={"cpu": "0.1", "mem": str(64 * 2**20)})


def mount_of(folder_id: UUID, target: str = "/home/work/data", **over: object) -> MountSpec:
    values: dict[str, Any] = {"host": "local", "folder_name": "data", "rights": "edit"} | over
    return MountSpec(folder_id=folder_id, target=target, **values)


@pytest.mark.parametrize("host", ["local", "claimed"])
def test_a_pod_writes_a_folder_and_only_reads_another(
    backend: KubernetesBackend, new_spec: NewSpec, root: Path, host: str
) -> None:
    ids = uuid4(), uuid4()
    mine, theirs = (folder_on_disk(root, one, uid=OWNER) for one in ids)
    (theirs / "given").write_text("from outside")
    mounts = [mount_of(ids[0], host=host), mount_of(ids[1], "/home/work/theirs", host=host, rights="view")]
    program = "cat theirs/given; echo made >data/made; echo no >theirs/made; rm -f theirs/given; sleep 60"
    spec = new_spec(mounts=mounts, session_type="batch", command=program)
    backend.start(spec)
    until(lambda: (mine / "made").exists())
    backend.stop(spec.kernel_id, grace=2)
    assert (mine / "made").read_text() == "made\n"
    assert os.listdir(theirs) == ["given"]
    assert b"from outside" in backend.read_log(spec.kernel_id, limit=1000)[0]


@pytest.mark.parametrize("host", ["local", "claimed"])
def test_a_folder_that_is_missing_ends_the_start(backend: KubernetesBackend, new_spec: NewSpec, host: str) -> None:
    with pytest.raises(StartFailed) as error:
        backend.start(new_spec(mounts=[mount_of(uuid4(), host=host)]))
    assert error.value.code == "folder-missing"
    assert backend.kernels() == []


def test_an_automatic_folder_that_is_missing_is_left_out(backend: KubernetesBackend, new_spec: NewSpec) -> None:
    spec = new_spec(mounts=[mount_of(uuid4(), is_automatic=True)], session_type="batch", command="ls -A data")
    backend.start(spec)
    assert ended_of(backend, spec.kernel_id).exit_code != 0
    assert "data" in backend.left_out(spec.kernel_id)


def test_hosts_are_reported_and_a_claim_that_is_missing_is_said(place: tuple[str, Path], tmp_path: Path) -> None:
    storage = {"good": PoolStorage(claim="home"), "none": PoolStorage(claim="nothing")}
    pool = PoolSettings(storage=storage)
    backend = KubernetesBackend(tmp_path, find_access(place[1]), pool, deployment="test", agent="n2")
    reports = {report.name: report for report in backend.storage_hosts()}
    assert (reports["good"].fault, reports["good"].sub_paths) == ("", False)
    assert '"nothing" not found' in reports["none"].fault
    with pytest.raises(BackendError):
        backend.cut_folder(uuid4(), uuid4())
    backend.close()
