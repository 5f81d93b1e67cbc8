"""Computes how the kernels of a session reach each other: addresses, variables for parallel programs, and SSH keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.conf import settings

from backendai.base.core.slots import MILLI, Slots
from backendai.base.core.ssh_keys import derived_key, seed_text
from backendai.base.wire.cluster_network import SSH_PORT, ClusterKeys, Peer
from backendai.domain.compute.models import Kernel

_DEVICE = ".device"  # slots that count whole accelerators
_MASTER_PORTS = range(29500, 30000)
_NATIVE_SSH_PORTS = range(20000, 28000)


def processes_of(amounts: Slots) -> int:
    """Return how many processes of a parallel program a kernel runs: one for each whole accelerator, else one for each
    core."""
    return _accelerators(amounts) or max(1, amounts["cpu"] // MILLI)


def ssh_port_of(kernel_id: UUID, *, native: bool) -> int:
    """Return the port at which the session's other kernels reach a kernel by SSH. Native kernels share the ports of a
    machine, so their port depends on the kernel's id."""
    return _NATIVE_SSH_PORTS[kernel_id.int % len(_NATIVE_SSH_PORTS)] if native else SSH_PORT


def keys_of(session_id: UUID) -> ClusterKeys:
    """Return the SSH keys that the kernels of this session share. They are derived from the session's id and never
    stored."""
    login, host = (
        seed_text(derived_key(settings.TICKET_KEY, salt=settings.DEPLOYMENT, name=f"cluster {what} {session_id}"))
        for what in ("login", "host")
    )
    return ClusterKeys(login=login, host=host)


def launcher_environ(kernel: Kernel, peers: Sequence[Peer]) -> dict[str, str]:
    """Return the variables from which ``torchrun`` and similar launchers read rank and peers; empty for a single
    kernel. WORLD_SIZE and RANK are left out, as they count processes, and only the launcher knows how many it
    starts."""
    if len(peers) < 2:
        return {}
    port = str(_MASTER_PORTS[kernel.session_id.int % len(_MASTER_PORTS)])
    size, rank = str(len(peers)), str(kernel.rank)
    found = {
        "MASTER_ADDR": peers[0].hostname,
        "MASTER_PORT": port,
        "NNODES": size,
        "NODE_RANK": rank,
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": peers[0].hostname,
        "PET_MASTER_PORT": port,
    }
    if count := _accelerators(kernel.amounts):
        found["PET_NPROC_PER_NODE"] = str(count)
    return found


def _accelerators(amounts: Slots) -> int:
    return sum(amount // MILLI for slot, amount in amounts.items() if slot.endswith(_DEVICE))
