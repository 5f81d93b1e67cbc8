"""Notes for administrators about an agent with virtual machines."""

from __future__ import annotations

from collections.abc import Sequence

from backendai.agent.backends.qemu.trial import AccelerationTest
from backendai.base.core.slots import format_size
from backendai.base.wire.messages import Note

_NO_LIMITS = "No control group limits the processors of a virtual machine."
_NO_USERS = "All virtual machines run as the agent's own user."


def describe(
    trial: AccelerationTest | None,
    fault: str,
    fix: str,
    *,
    overhead: int,
    has_limits: bool,
    is_root: bool,
    storage: str,
    no_network: str,
    hidden: str,
) -> Sequence[Note]:
    """Return the notes. ``fault``: why no virtual machine can start. ``storage``: why none mounts folders.
    ``no_network``: why none has a network. ``hidden``: which machines cannot be reached."""
    notes = [
        Note(
            code="qemu-overhead",
            message=f"Kernels are virtual machines: QEMU takes {format_size(overhead)} of the memory of each.",
            fix="Offer presets with that much more memory, or change BACKENDAI_QEMU_OVERHEAD.",
        ),
    ]
    if no_network:
        notes.append(_without_network(no_network))
    elif hidden:
        fix = "Set BACKENDAI_QEMU_GUESTS to a network of 256 addresses that nobody here uses."
        notes.append(Note(code="qemu-network-hidden", message=hidden, fix=fix))
    if fault:
        notes.append(Note(code="qemu-starts-nothing", message=fault, fix=fix))
    if trial is not None and trial.why_not:
        notes.append(_emulated(trial.why_not))
    if storage:
        notes.append(Note(code="qemu-no-folders", message=storage, fix="Run the agent as root, with virtiofsd."))
    if lacking := [*([] if has_limits else [_NO_LIMITS]), *([] if is_root else [_NO_USERS])]:
        fix = "Run the agent as root, where it may make control groups."
        notes.append(Note(code="qemu-weaker-limits", message=" ".join(lacking), fix=fix))
    return notes


def _emulated(why: str) -> Note:
    return Note(
        code="qemu-emulated",
        message=f"Virtual machines are emulated, 10 to 30 times slower: {why}.",
        fix="Enable virtualization in the firmware (VT-x or AMD-V), load kvm_intel or kvm_amd, and let the agent open"
        " /dev/kvm.",
    )


def _without_network(why: str) -> Note:
    return Note(
        code="qemu-no-network",
        message=f"Virtual machines have no network, programs in them reach no other machine: {why}.",
        fix="Run the agent as root, with iptables installed, and without BACKENDAI_QEMU_NETWORK=off.",
    )
