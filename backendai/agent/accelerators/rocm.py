"""AMD GPUs (``rocm.device``), read from sysfs without AMD's libraries.

A container gets a GPU's render node and ``/dev/kfd``, which all GPUs share. The driver gives no access to a GPU whose
render node cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from backendai.agent.accelerators import sysfs
from backendai.agent.accelerators.base import Accelerator, Device, Found, Grant, MeasuredUse, Part, ProcessUse
from backendai.base.wire.messages import Note

VENDOR = "0x1002"
_SLOT = "rocm.device"
_KFD = "/dev/kfd"


class Rocm(Accelerator):
    """``root``: the folder that contains the machine's ``/sys`` and ``/dev``."""

    kind = "rocm"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._sys = root, root / "sys"

    def discover(self) -> Found:
        devices = tuple(self._devices())
        cards = sysfs.count_cards(self._sys, VENDOR)
        # No note for integrated graphics, which most desktop processors have.
        broken = bool(devices) and not (self._root / _KFD.lstrip("/")).exists()
        return Found(devices, (_NO_KFD,) if broken else (), is_present=bool(devices or cards))

    def samples(self, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        uses = {}
        for device in devices:
            card = self._card(device.paths[-1])
            processes = dict(self._processes(device))
            busy = sysfs.read_number(card / "gpu_busy_percent")
            uses[device.id] = MeasuredUse(
                float(busy) if busy is not None else None, sysfs.read_number(card / "mem_info_vram_used"), processes
            )
        return uses

    def container(self, parts: Sequence[Part]) -> Grant:
        paths = _paths(parts)
        devices = [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rw"} for path in paths]
        groups = {self._group(path) for path in paths} - {None}
        return Grant(host={"Devices": devices, "GroupAdd": sorted(str(group) for group in groups)})

    def native(self, parts: Sequence[Part]) -> Grant:
        numbers = ",".join(str(number) for number in sorted(part.device.number for part in parts))
        return Grant({"ROCR_VISIBLE_DEVICES": numbers}, paths=tuple(_paths(parts)))

    def close(self) -> None:
        """Do nothing."""

    def _devices(self) -> Iterator[Device]:
        """Yield a device for every GPU in the driver's topology, which also lists processors."""
        nodes = (self._sys / "class/kfd/kfd/topology/nodes").glob("[0-9]*")
        number = 0
        for node in sorted(nodes, key=lambda path: int(path.name) if path.name.isdigit() else -1):
            told = _properties(node)
            minor = told.get("drm_render_minor", "0")
            if told.get("simd_count", "0") == "0" or not minor.isdigit() or minor == "0":
                continue
            yield self._device(node, number, f"/dev/dri/renderD{minor}", told.get("unique_id", "0"))
            number += 1

    def _device(self, node: Path, number: int, render: str, unique: str) -> Device:
        card = self._card(render)
        bus = card.resolve().name
        numa = sysfs.read_number(card / "numa_node")
        return Device(
            id=f"AMD-{int(unique):016x}" if unique.isdigit() and unique != "0" else f"AMD-{bus}",
            slot=_SLOT,
            model=sysfs.read(card / "product_name") or f"AMD {sysfs.read(node / 'name') or 'GPU'}",
            memory=sysfs.read_number(card / "mem_info_vram_total"),
            number=number,
            numa=numa if numa is not None and numa >= 0 else None,
            fault="" if (self._root / render.lstrip("/")).exists() else f"{render} is missing",
            paths=(_KFD, render),
        )

    def _card(self, render: str) -> Path:
        return self._sys / "class/drm" / Path(render).name / "device"

    def _processes(self, device: Device) -> Iterator[tuple[int, ProcessUse]]:
        """Yield each process's GPU memory according to the driver."""
        gpu = self._gpu_id(device)
        for process in (self._sys / "class/kfd/kfd/proc").glob("[0-9]*"):
            used = sysfs.read_number(process / f"vram_{gpu}")
            if used and process.name.isdigit():
                yield int(process.name), ProcessUse(mem_used=used)

    def _gpu_id(self, device: Device) -> str:
        minor = Path(device.paths[-1]).name.removeprefix("renderD")
        for node in (self._sys / "class/kfd/kfd/topology/nodes").glob("[0-9]*"):
            if _properties(node).get("drm_render_minor") == minor:
                return sysfs.read(node / "gpu_id")
        return ""

    def _group(self, path: str) -> int | None:
        """Return the id of the group with access to a device file; None for root's or a missing file."""
        try:
            return (self._root / path.lstrip("/")).stat().st_gid or None
        except OSError:
            return None


def _properties(node: Path) -> dict[str, str]:
    lines = (line.split() for line in sysfs.read(node / "properties").splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1}


def _paths(parts: Sequence[Part]) -> list[str]:
    ordered = sorted(parts, key=lambda part: part.device.number)
    return list(dict.fromkeys(path for part in ordered for path in part.device.paths))


_NO_KFD = Note(
    code="amd-driver",
    message=f"This machine has AMD GPUs, but {_KFD} is missing: programs cannot compute on them.",
    fix="Load the module amdgpu of a Linux kernel with HSA_AMD, or install AMD's driver (amdgpu-dkms).",
)
