"""The command line of a kernel's QEMU. The supervisor replaces ``{image}`` and others by descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backendai.agent.backends.qemu.boot import BootFiles
from backendai.agent.backends.qemu.networks.addresses import GuestAddresses
from backendai.agent.backends.qemu.networks.network import network_words
from backendai.agent.backends.qemu.tools import QemuTools

_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_TRANSLATED = 64  # MiB for translated code in emulation; QEMU's default is up to 1 GiB
# On a busy host an emulated timer misses the kernel's check of it, which ends in a panic. KVM guests skip the check.
_TIMER = "no_timer_check"
_KERNEL = f"console=ttyS0 panic=-1 mitigations=off random.trust_cpu=on {_TIMER} quiet loglevel=4 init=/init"
TCG, KVM = "tcg", "kvm"
_ACCELERATION = {TCG: f"tcg,thread=multi,tb-size={_TRANSLATED}", KVM: "kvm"}
_PROCESSOR = {TCG: "max", KVM: "host"}


@dataclass(frozen=True, slots=True)
class GuestShape:
    """The properties of a guest. ``shares``: tags of its folders, whose servers the supervisor starts. ``has_kit``: it
    has a third disk with Python and tools. ``has_network``: it reaches other machines. ``rank``: in its cluster
    session; None: it has no other kernels. ``addresses``: inside."""

    memory: int  # bytes
    cores: int
    acceleration: str
    shares: Sequence[str] = ()
    has_kit: bool = False
    has_network: bool = False
    rank: int | None = None
    addresses: GuestAddresses = field(default_factory=GuestAddresses)


def trial_command(shape: GuestShape, tools: QemuTools, files: BootFiles) -> list[str]:
    """Return the command of a guest that powers off after booting. Raises ToolMissing."""
    return [
        *_machine(shape, tools),
        *("-kernel", str(files.kernel), "-initrd", str(files.initrd), "-append", f"{_KERNEL} backendai_trial=1"),
        *("-serial", "stdio", "-nic", "none"),
    ]


def command_of(shape: GuestShape, tools: QemuTools) -> list[str]:
    """Return QEMU's command. It opens no monitor and no port: all input and output goes through descriptors of the
    supervisor, its parent. Raises ToolMissing."""
    return [
        *_machine(shape, tools),
        *("-kernel", "/proc/self/fd/{kernel}", "-initrd", "/proc/self/fd/{initrd}", "-append", _KERNEL),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
        *_disk("image", 1, read_only=True),
        *_disk("disk", 2, read_only=False),
        *(_disk("kit", 3, read_only=True) if shape.has_kit else ()),
        *("-device", "virtio-serial-pci,max_ports=2"),
        *("-chardev", "socket,id=channel,fd={channel}"),
        *("-device", "virtserialport,chardev=channel,name=backendai,nr=1"),
        *_shares(shape),
        *network_words(shape.addresses, has_network=shape.has_network, rank=shape.rank),
    ]


def _disk(name: str, number: int, *, read_only: bool) -> list[str]:
    options = "readonly=on" if read_only else "cache=unsafe,discard=unmap"  # no data on it outlives the virtual machine
    drive = f"id={name},file=/dev/fdset/{number},format=raw,if=none,file.locking=off,{options}"
    opened = ["-add-fd", f"fd={{{name}}},set={number}"]
    if not read_only:  # QEMU opens the disk read-only first, then for writing
        opened += ["-add-fd", f"fd={{{name}_looked_at}},set={number}"]
    return [*opened, "-drive", drive, "-device", f"virtio-blk-pci,drive={name}"]


def _machine(shape: GuestShape, tools: QemuTools) -> list[str]:
    folders = [word for folder in tools.firmware() for word in ("-L", folder)]
    return [
        tools.need("qemu-system-x86_64"),
        *folders,
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none"),
        *("-sandbox", _SANDBOX),
        *("-machine", "pc,usb=off,vmport=off,hpet=off", "-m", _size(shape), "-smp", str(shape.cores)),
        *("-accel", _ACCELERATION[shape.acceleration], "-cpu", _PROCESSOR[shape.acceleration]),
    ]


def _size(shape: GuestShape) -> str:
    return f"{shape.memory // 2**20}M"


def _shares(shape: GuestShape) -> list[str]:
    if not shape.shares:
        return []
    words = ["-object", f"memory-backend-memfd,id=shared,size={_size(shape)},share=on", "-numa", "node,memdev=shared"]
    for tag in shape.shares:
        words += ["-chardev", f"socket,id={tag},fd={{{tag}}}", "-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]
    return words
