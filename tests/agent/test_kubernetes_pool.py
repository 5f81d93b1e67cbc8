"""A pool by its scripted API: capacity, nodes, GPUs, and how pods are made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backendai.agent.accelerators.inventory import PoolGpus
from backendai.agent.backends.base import BackendError, StartFailed
from backendai.agent.backends.kubernetes import mounts as kubernetes_folders
from backendai.agent.backends.kubernetes.api.access import ApiAccess
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.loop.machine import Machine
from backendai.agent.settings.kubernetes import PoolSettings, PoolStorage
from backendai.base.core.slots import Slots
from backendai.base.wire.mounts import MountSpec
from tests.agent.kubernetes_fake import Cluster, serving
from tests.agent.kubernetes_paper import backend, cluster
from tests.agent.specs import make_spec
from tests.patience import until

__all__ = ["backend", "cluster"]  # fixtures


def test_capacity_comes_from_nodes_and_else_from_the_quota_and_else_from_the_settings(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    assert backend.capacity() == Slots.parse({"cpu": 4, "mem": "8g"})
    assert backend.pool.gpus() == 2
    with pytest.raises(StartFailed) as error:
        backend.start(make_spec(slots={"cpu": "5", "mem": "64m"}))
    assert error.value.code == "wider-than-any-node" and "4" in error.value.message and "5" in error.value.message
    cluster.forbidden = {"nodes"}
    told = Slots.parse({"cpu": 3, "mem": "2g"})
    access = backend.api.access
    blind = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1", told=told)
    assert blind.capacity() == told
    assert "no-node-rights" in [note.code for note in blind.notes()]
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1500m", "limits.memory": "1Gi"}}}
    cluster.objects["resourcequotas", "q"] = quota
    limited = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1", told=told)
    assert limited.capacity() == Slots.parse({"cpu": "1.5", "mem": "1g"})


def test_an_idle_agent_asks_little(cluster: Cluster, tmp_path: Path) -> None:
    """Three minutes of what the loops of an agent do, by a clock of their own."""
    now, minutes = 0.0, 3
    with serving(cluster) as address:
        access = ApiAccess(address, "lab", None, lambda: "")
        backend = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1", clock=lambda: now)
        backend.setup()
        until(lambda: cluster.watches)
        before = len(cluster.asked)
        for second in range(0, 60 * minutes, 5):
            now = float(second)
            backend.kernels()
            backend.pool.gpus()
            if second % 30 == 0:
                for look in (backend.capacity, backend.notes, backend.images, backend.engine, backend.fault):
                    look()
                backend.sweep(set())
        asked = [f"{method} {path}" for method, path in cluster.asked[before:]]
        backend.close()
    assert len(asked) / minutes <= 30, asked


def node_of(name: str, cpu: str, memory: str, gpus: str = "0", architecture: str = "amd64") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpus}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": room, "conditions": ready, "nodeInfo": {"architecture": architecture}}
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status}


def test_a_kernel_has_to_fit_into_one_node_in_everything(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.nodes = [node_of("wide", "64", "512Gi"), node_of("gpu", "8", "64Gi", "4"), node_of("small", "2", "4Gi")]
    wide, gpu = Slots.parse({"cpu": 64, "mem": "512g"}), Slots.parse({"cpu": 8, "mem": "64g", "cuda.device": 4})
    assert backend.widest() == [wide, gpu]
    for slots, words in (({"cpu": "32", "mem": "1g", "cuda.device": "1"}, "all of"), ({"cuda.device": "5"}, "5")):
        with pytest.raises(StartFailed) as error:
            backend.start(make_spec(slots=slots))
        assert error.value.code == "wider-than-any-node" and words in error.value.message
    backend.start(make_spec(slots={"cpu": "8", "mem": "1g", "cuda.device": "4"}))
    assert cluster.pods()[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_a_pool_has_one_architecture_and_its_pods_go_nowhere_else(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.nodes = [node_of("a", "8", "8Gi", architecture="arm64"), node_of("b", "4", "8Gi")]
    assert backend.architecture() == "aarch64"
    assert backend.capacity() == Slots.parse({"cpu": 8, "mem": "8g"})
    assert "amd64" in next(note.message for note in backend.notes() if note.code == "node-away")
    backend.start(make_spec())
    assert cluster.pods()[0]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}


def test_the_load_of_the_agents_own_machine_is_not_that_of_the_pool(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    cluster.nodes = [node_of("a", "8", "8Gi", architecture="arm64")]
    machine = Machine(backend, offered=lambda slots: slots, gateway_url="")
    told = machine.describe([], engine_fault="", draining=False, wait=0.0)
    assert (told.architecture, told.os_kernel, told.widest) == ("aarch64", "", [{"cpu": "8", "mem": str(8 * 2**30)}])
    assert told.live is not None
    assert {told.live.cpu_pct, told.live.load, told.live.mem_used, told.live.disk_free} == {None}


def test_a_pod_is_made_as_the_pool_and_the_kernel_say(cluster: Cluster, backend: KubernetesBackend) -> None:
    pool = PoolSettings(
        nodes={"pool": "a"},
        labels={"kueue.x-k8s.io/queue-name": "lab"},
        runtime_class="kata",
        gpu="amd.com/gpu",
        tolerations=({"key": "spot", "operator": "Exists"},),
    )
    backend = KubernetesBackend(
        backend._logs._folder, backend.api.access, pool, deployment="test", agent="n1", told=Slots()
    )
    cluster.nodes = [node_of("a", "8", "8Gi")]
    cluster.nodes[0]["status"]["allocatable"]["amd.com/gpu"] = "2"
    spec = make_spec(slots={"cpu": "0.5", "mem": str(2**30), "cuda.device": "1"}, shm_bytes=2**20, scratch_bytes=2**30)
    backend.start(spec)
    pod = cluster.pods()[0]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab"
    assert (pod["spec"]["nodeSelector"], pod["spec"]["runtimeClassName"]) == ({"pool": "a"}, "kata")
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    volumes = {one.pop("name"): one for one in pod["spec"]["volumes"]}
    assert volumes["shm"] == {"emptyDir": {"medium": "Memory", "sizeLimit": str(2**20)}}
    assert volumes["scratch"] == {"emptyDir": {"sizeLimit": str(2**30)}}
    wanted = {"cpu": "500m", "memory": str(2**30), "amd.com/gpu": "1"}
    resources = pod["spec"]["containers"][0]["resources"]
    assert wanted.items() <= resources["requests"].items() and wanted.items() <= resources["limits"].items()
    assert any("labelSelector=pool%3Da" in path for method, path in cluster.asked if "/nodes" in path)
    backend.close()


def test_gpus_of_a_pool_are_as_many_as_its_nodes_have_and_stay_while_nothing_is_known(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    now = [2]

    def count() -> int:
        if not now:
            raise BackendError("The Kubernetes API does not answer.")
        return now[0]

    gpus = PoolGpus(count)
    assert [device.slot for device in gpus.discover().devices] == ["cuda.device"] * 2
    now.clear()
    assert len(gpus.discover().devices) == 2, "a cluster that does not answer has not lost its GPUs"
    assert backend.pool.gpus() == 2


def test_a_home_can_lie_on_a_volume_of_its_own(cluster: Cluster, backend: KubernetesBackend, tmp_path: Path) -> None:
    pool = PoolSettings(scratch="fast")
    own = KubernetesBackend(tmp_path, backend.api.access, pool, deployment="test", agent="n1")
    own.start(make_spec(scratch_bytes=5 * 2**30))
    spec = cluster.pods()[0]["spec"]
    scratch = next(one for one in spec["volumes"] if one["name"] == "scratch")
    claim = scratch["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]) == ("fast", {"requests": {"storage": str(5 * 2**30)}})
    assert "home-on-node" not in [note.code for note in own.notes()]
    with pytest.raises(StartFailed) as error:
        own.start(make_spec())
    assert "BACKENDAI_SCRATCH_BYTES" in error.value.message
    own.close()


def test_folders_are_parts_of_the_volume_of_their_host_and_never_parts_of_folders(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "1 2 0:1 / /home/work/data rw - nfs a rw\n1 2 0:1 / /home/work/ref ro - nfs a rw\n"
    monkeypatch.setattr(kubernetes_folders, "output_of", lambda *_: (table.encode(), 0))
    pool = PoolSettings(storage={"home": PoolStorage(claim="shared", folder="lab")})
    backend = KubernetesBackend(tmp_path, backend.api.access, pool, deployment="test", agent="n1")
    folder, other = uuid4(), uuid4()
    shared: dict[str, Any] = {"host": "home", "folder_name": "data"}
    mine = MountSpec(folder_id=folder, target="/home/work/data", rights="edit", **shared)
    theirs = MountSpec(folder_id=other, target="/home/work/ref", rights="view", **shared)
    backend.start(make_spec(mounts=[theirs, mine]))
    pod = cluster.pods()[0]["spec"]
    mounts = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "storage-home"]
    assert [(one["mountPath"], one["readOnly"]) for one in mounts] == [(mine.target, False), (theirs.target, True)]
    assert mounts[0]["subPath"] == f"lab/{folder.hex[:2]}/{folder}/data"
    assert [one for one in pod["volumes"] if "persistentVolumeClaim" in one] == [
        {"name": "storage-home", "persistentVolumeClaim": {"claimName": "shared"}}
    ]
    for over, code in (({"sub_path": "a"}, "mount-refused"), ({"host": "other"}, "storage-missing")):
        with pytest.raises(StartFailed) as error:
            backend.start(make_spec(mounts=[mine.model_copy(update=over)]))
        assert error.value.code == code
    assert len(cluster.pods()) == 1
    table = table.replace(" ro ", " rw ")
    with pytest.raises(StartFailed) as error:
        backend.start(make_spec(mounts=[mine, theirs]))
    assert error.value.code == "mount-refused" and len(cluster.pods()) == 1, "a pod that could write is removed"
    backend.close()
