"""AMD's GPUs from a made-up sysfs, accelerators on paper, and which process belongs to whom."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from backendai.agent.accelerators.base import Accelerator, Part
from backendai.agent.accelerators.cuda import Cuda
from backendai.agent.accelerators.inventory import Accelerators, Mock, kernels_of
from backendai.agent.accelerators.rocm import Rocm
from backendai.agent.backends.base import StartFailed
from backendai.base.core.slots import Slots
from tests.agent.accelerators.contract import keeps_the_contract
from tests.agent.specs import make_spec

GIB = 2**30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def amd(tmp_path: Path) -> Path:
    """A machine with a processor, two GPUs that compute, and a node of the driver that says nonsense."""
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", "cpu_cores_count 64\nsimd_count 0")
    for place, minor in ((1, 128), (2, 129)):
        write(nodes / f"{place}/properties", f"simd_count 440\ndrm_render_minor {minor}\nunique_id {7 * place}")
        write(nodes / f"{place}/name", "aldebaran")
        write(nodes / f"{place}/gpu_id", f"{5000 + place}")
        bus = tmp_path / f"sys/bus/pci/devices/0000:0{place}:00.0"
        for name, text in {
            "vendor": "0x1002",
            "class": "0x038000",
            "numa_node": f"{place - 1}",
            "gpu_busy_percent": f"{30 * place}",
            "mem_info_vram_total": f"{64 * GIB}",
            "mem_info_vram_used": f"{place * GIB}",
        }.items():
            write(bus / name, text)
        card = tmp_path / f"sys/class/drm/renderD{minor}"
        card.mkdir(parents=True)
        (card / "device").symlink_to(bus)
        write(tmp_path / f"dev/dri/renderD{minor}", "")
    write(nodes / "3/properties", "drm_render_minor\nsimd_count many")
    write(tmp_path / "dev/kfd", "")
    write(tmp_path / "sys/class/kfd/kfd/proc/4242/vram_5002", f"{GIB}")
    return tmp_path


def test_every_accelerator_keeps_its_promises_with_and_without_hardware(amd: Path, tmp_path: Path) -> None:
    kinds: list[Accelerator] = [
        Rocm(amd),
        Rocm(tmp_path / "nowhere"),
        Mock({"cuda.device": 3000, "npu.shares": 2500}),
        Mock({}),
        Cuda("device", sys=tmp_path / "nowhere"),  # whatever this machine has
    ]
    for one in kinds:
        keeps_the_contract(one)


def test_amd_gpus_are_found_without_a_library(amd: Path) -> None:
    rocm = Rocm(amd)
    found = rocm.discover()
    assert [(one.id, one.memory, one.numa, one.fault) for one in found.devices] == [
        ("AMD-0000000000000007", 64 * GIB, 0, ""),
        ("AMD-000000000000000e", 64 * GIB, 1, ""),
    ]
    second = found.devices[1]
    use = rocm.samples(found.devices)[second.id]
    assert (use.util_pct, use.mem_used) == (60.0, 2 * GIB)
    assert use.processes[4242].mem_used == GIB
    host = rocm.container([Part(second, 1000)]).host
    assert [one["PathOnHost"] for one in host["Devices"]] == ["/dev/kfd", "/dev/dri/renderD129"]
    assert host["GroupAdd"] == ([str(os.getgid())] if os.getgid() else [])
    native = rocm.native([Part(second, 1000)])
    assert (native.environ["ROCR_VISIBLE_DEVICES"], native.paths) == ("1", ("/dev/kfd", "/dev/dri/renderD129"))


def test_an_amd_gpu_without_its_device_files_is_said_to_be_so(amd: Path) -> None:
    (amd / "dev/dri/renderD129").unlink()
    (amd / "dev/kfd").unlink()
    found = Rocm(amd).discover()
    assert [bool(one.fault) for one in found.devices] == [False, True]
    assert [note.code for note in found.notes] == ["amd-driver"]


def test_accelerators_on_paper_are_offered_in_the_amounts_that_were_asked_for() -> None:
    accelerators = Accelerators(asked=Slots.parse({"cuda.shares": "2.5", "npu.device": 1}))
    accelerators.look()
    offer = accelerators.offer([])
    assert offer.capacity == Slots.parse({"cuda.shares": "2.5", "npu.device": 1})
    assert [len(ids) for ids in offer.devices.values()] == [3, 1]
    assert all(sample.mock for sample in offer.samples.values())
    assert [note.code for note in offer.notes] == ["mock-accelerators"]
    device = offer.devices["cuda.shares"][0]
    grant = accelerators.grant(make_spec(devices={"cuda.shares": {device: "0.5"}}))
    assert (grant.environ["GPU_COUNT"], grant.environ["NVIDIA_VISIBLE_DEVICES"], grant.host) == ("1", "void", {})
    with pytest.raises(StartFailed) as refused:
        accelerators.grant(make_spec(devices={"cuda.shares": {"MOCK-cuda.shares-7": "0.5"}}))
    assert refused.value.code == "device-lost"


def test_what_nobody_can_be_given_is_not_offered_for_a_while(amd: Path) -> None:
    now = [100.0]
    accelerators = Accelerators([Rocm(amd)], clock=lambda: now[0])
    accelerators.look()
    assert accelerators.offer([]).capacity == Slots.parse({"rocm.device": 2})
    accelerators.withhold("rocm", "a start failed")
    offer = accelerators.offer([])
    assert (offer.capacity, {note.code for note in offer.notes}) == (Slots(), {"accelerator-unhealthy"})
    now[0] += 601
    assert accelerators.offer([]).capacity == Slots.parse({"rocm.device": 2})


class Broken(Mock):
    """Fails in ways that nobody has thought of."""

    kind = "broken"

    def discover(self):
        raise ZeroDivisionError

    def samples(self, devices):
        raise ZeroDivisionError


def test_an_accelerator_that_breaks_takes_nothing_else_along(amd: Path) -> None:
    accelerators = Accelerators([Broken({}), Rocm(amd)])
    accelerators.look()
    offer = accelerators.offer([])
    assert offer.capacity == Slots.parse({"rocm.device": 2})
    assert [note.code for note in offer.notes] == ["accelerator-error"]


def test_a_process_belongs_to_the_kernel_of_its_container(tmp_path: Path) -> None:
    ours, native, container, foreign = uuid4(), uuid4(), "a" * 64, "b" * 64
    kernels: dict[str, UUID] = {container: ours, "native": native}
    claim = f"X=1\0BACKENDAI_KERNEL_ID={native}\0"
    for pid, cgroup, environ in (
        (1, f"0::/system.slice/docker-{container}.scope", claim),
        (2, f"0::/docker/{foreign}", claim),
        (3, f"4:memory:/backendai-{native}\n0::/", ""),
        (4, "0::/user.slice", claim),
        (5, "0::/user.slice", f"BACKENDAI_KERNEL_ID={uuid4()}\0"),
        (6, "0::/user.slice", "BACKENDAI_KERNEL_ID=nonsense\0"),
    ):
        write(tmp_path / str(pid) / "cgroup", cgroup)
        (tmp_path / str(pid) / "environ").write_text(environ)
    assert kernels_of(range(8), kernels, tmp_path) == {1: ours, 3: native, 4: native}
