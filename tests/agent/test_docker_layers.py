"""Writable layers of containers: their limits, and who is named when one is exceeded."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.base import BackendError, LimitExceeded
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.create import container_body
from backendai.agent.backends.docker.disk import layers as docker_layers
from backendai.agent.backends.docker.disk.layers import WritableLayer, WritableLayers, can_size_layers
from backendai.agent.backends.docker.engine import Engine
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.prerequisites import need_root
from tests.agent.specs import make_spec
from tests.patience import until

MIB = 2**20
NOBODY = Engine("unix:///nowhere", "test", "n1")
QUOTA = {
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "xfs"], ["Supports d_type", "true"]],
    "DockerRootDir": "/srv/docker",
}


class Disk:
    """A disk whose free room a test sets."""

    total = 100 * 2**30

    def __init__(self) -> None:
        self.free = 50 * 2**30


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(WritableLayers, "_look_at_disk", lambda self: (disk.free, disk.total))
    return disk


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(docker_layers.time, "monotonic", lambda: now[0])
    return now


class Walks(WritableLayers):
    """Layers that a test makes up; ``walks`` counts the measurements."""

    def __init__(self, *layers: WritableLayer, reserve: float = 0.0) -> None:
        super().__init__(NOBODY, folder=lambda: Path("/"), reserve=reserve)
        self.layers, self.walks = list(layers), 0

    def measure(self) -> list[WritableLayer]:
        self.walks += 1
        return sorted(self.layers, key=lambda layer: layer.size, reverse=True)

    def ask(self) -> list[LimitExceeded]:
        found = self.overfull()
        with self._measuring:  # its thread has ended
            return found


def layer(size: int, *, files: int = 0, limit: int = 100 * MIB) -> WritableLayer:
    return WritableLayer(uuid4(), size, files, limit)


def test_it_names_those_above_their_limit_once_and_the_largest_first(disk: Disk) -> None:
    within, above, far_above = layer(100 * MIB), layer(101 * MIB), layer(900 * MIB)
    layers = Walks(within, above, far_above)
    assert layers.ask() == []
    named = layers.ask()
    assert [over.kernel_id for over in named] == [far_above.kernel_id, above.kernel_id]
    assert {over.reason for over in named} == {"layer-full"}
    assert "900 MiB" in named[0].message and "100 MiB" in named[0].message
    assert layers.ask() == []


def test_it_counts_files_too(disk: Disk) -> None:
    many = layer(MIB, files=6401)
    layers = Walks(many, layer(MIB, files=6400))
    layers.ask()
    (over,) = layers.ask()
    assert over.kernel_id == many.kernel_id
    assert "6,401 files" in over.message and "6,400" in over.message


def test_it_names_those_who_come_close_to_their_limit(disk: Disk) -> None:
    near = layer(85 * MIB)
    layers = Walks(near, layer(79 * MIB))
    assert layers.notes() == []
    layers.ask()
    (note,) = layers.notes()
    assert note.code == "layers-nearly-full" and str(near.kernel_id) in note.message


def test_it_says_when_kernels_may_write_more_than_there_is_room(disk: Disk) -> None:
    disk.free = 250 * MIB
    layers = Walks(layer(10 * MIB), layer(30 * MIB))
    layers._homes_promised = lambda limits, folder: sum(limits.values()) // 2
    layers.ask()
    (note,) = layers.notes()
    assert note.code == "disk-overcommitted" and "260 MiB" in note.message and "250 MiB" in note.message
    disk.free = 300 * MIB
    assert layers.notes() == []


def test_it_measures_once_a_minute(disk: Disk, clock: list[float]) -> None:
    layers = Walks()
    for _ in range(12):
        layers.ask()
        clock[0] += 5
    assert layers.walks == 1
    layers.ask()
    assert layers.walks == 2


@pytest.mark.parametrize("free", [2, 47])
def test_it_measures_at_once_when_the_disk_is_short_or_fills_fast(disk: Disk, clock: list[float], free: int) -> None:
    layers = Walks(reserve=5.0)
    layers.ask()
    disk.free = free * 2**30
    clock[0] += 6
    layers.ask()
    assert layers.walks == 2


def test_it_spends_a_tenth_of_its_time_at_most(disk: Disk, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Walks()
    measure = layers.measure
    monkeypatch.setattr(layers, "measure", lambda: clock.__setitem__(0, clock[0] + 20) or measure())
    layers.ask()
    clock[0] += 199
    layers.ask()
    assert layers.walks == 1
    clock[0] += 1
    layers.ask()
    assert layers.walks == 2


def test_an_engine_that_is_silent_names_nobody(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Walks()

    def silent() -> list[WritableLayer]:
        raise BackendError("The container engine does not answer.")

    monkeypatch.setattr(layers, "measure", silent)
    assert (layers.ask(), layers.ask(), layers.notes()) == ([], [], [])


@pytest.mark.parametrize(
    ("mount", "info", "can"),
    [
        ("/dev/sdb /srv xfs rw,prjquota 0 0", QUOTA, True),
        ("/dev/sdb /srv xfs rw,noquota 0 0", QUOTA, False),
        ("/dev/sdb /mnt xfs rw,prjquota 0 0", QUOTA, False),
        ("/dev/sdb /srv xfs rw,prjquota 0 0", QUOTA | {"Driver": "overlayfs"}, False),
        ("/dev/sdb /srv ext4 rw,prjquota 0 0", QUOTA | {"DriverStatus": [["Backing Filesystem", "extfs"]]}, False),
    ],
)
def test_it_knows_engines_that_limit_layers(
    mount: str, info: dict[str, object], can: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\n{mount}\n")
    monkeypatch.setattr(docker_layers, "_MOUNTS", mounts)
    assert can_size_layers(info) is can


def test_a_layer_gets_the_limit_of_the_scratch_folder(tmp_path: Path) -> None:
    spec = make_spec(scratch_bytes=5 * MIB)
    body = container_body(spec, labels={}, scratch=tmp_path, network="none", cpus=1, sizes_layers=True)
    assert body["HostConfig"]["StorageOpt"] == {"size": str(5 * MIB)}
    assert body["Labels"][docker_layers.LIMIT_LABEL] == str(5 * MIB)
    unlimited = container_body(make_spec(), labels={}, scratch=tmp_path, network="none", cpus=1, sizes_layers=True)
    assert "StorageOpt" not in unlimited["HostConfig"]


def own_folder(engine: APIClient, kernel_id: object) -> None:
    """Give user 1000 a folder in the layer, as our images do."""
    made = engine.exec_create(f"krn-{kernel_id}", ["mkdir", "-p", "-m", "777", "/opt/own"], user="0:0")
    engine.exec_start(made["Id"])


@pytest.mark.docker
@pytest.mark.parametrize("by_engine", [False, True])
def test_it_finds_the_container_that_fills_the_disk(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch, by_engine: bool
) -> None:
    need_root("only root looks into the engine's folders")
    greedy, modest, unlimited = new_spec(scratch_bytes=16 * MIB), new_spec(scratch_bytes=16 * MIB), new_spec()
    for spec, count in ((greedy, 24), (modest, 8), (unlimited, 24)):
        backend.start(spec)
        own_folder(engine, spec.kernel_id)
        assert shell(engine, spec.kernel_id, f"dd if=/dev/zero of=/opt/own/fill bs=1M count={count}")[0] == 0
    shell(engine, modest.kernel_id, "dd if=/dev/zero of=/home/work/fill bs=1M count=10")
    if by_engine:  # as an agent that cannot look into them
        monkeypatch.setattr(docker_layers.os, "geteuid", lambda: 1000)
    named = list[LimitExceeded]()
    until(lambda: bool(named.extend(backend.overfull()) or named))
    assert [(over.kernel_id, over.reason) for over in named] == [(greedy.kernel_id, "layer-full")]
    assert "It holds 24" in named[0].message and "16 MiB" in named[0].message


@pytest.mark.docker
def test_it_does_not_count_holes_of_files(backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> None:
    need_root("only root looks into the engine's folders")
    spec = new_spec(scratch_bytes=16 * MIB)
    backend.start(spec)
    own_folder(engine, spec.kernel_id)
    assert shell(engine, spec.kernel_id, "dd if=/dev/zero of=/opt/own/hole bs=1M count=1 seek=1000")[0] == 0
    shell(engine, spec.kernel_id, "for i in 1 2 3; do touch /opt/own/file-$i; done")
    (found,) = backend._layers.measure()
    assert MIB <= found.size < 2 * MIB
    assert 5 <= found.files < 30


@pytest.mark.docker
def test_it_starts_kernels_where_the_engine_refuses_a_limit_of_the_layer(
    backend: DockerBackend, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    if can_size_layers(backend._engine_info()):
        pytest.skip("this engine does not refuse it")
    monkeypatch.setattr(backend._starter, "_sizes_layers", lambda: True)
    spec = new_spec(scratch_bytes=16 * MIB)
    assert not backend.start(spec).adopted
    assert backend.ended(spec.kernel_id) is None
    assert backend._starter._size_refused
