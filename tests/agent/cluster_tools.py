"""Kernels of one session that reach each other: their specs, and a program that does what ``mpirun`` does."""

from __future__ import annotations

from uuid import uuid4

from backendai.agent.backends.base import Backend
from backendai.base.wire.cluster_network import Peer
from backendai.base.wire.messages import KernelSpec
from backendai.domain.compute.services.placing.cluster_access import keys_of, ssh_port_of
from tests.agent.contract_tools import NewSpec, ended_of

HOSTILE = 'it\'s "odd" $(reboot) `x`;\nand\ttwo lines\\'
# Starts one process on every host of the host file, and collects what they say: nothing else is given to it.
MPIRUN = r"""
set -e
for host in $(cut -d' ' -f1 "$OMPI_MCA_orte_default_hostfile"); do
  until ssh -n "$host" true 2>/dev/null; do sleep 0.1; done
  ssh -n "$host" 'echo "rank $NODE_RANK of $NNODES on $BACKENDAI_CLUSTER_HOST"; printf %s "$ODD" | md5sum'
done
""".strip()


# What a user types who has Open MPI: a program, and no hosts, numbers or keys.
OPEN_MPI = """
mpirun sh -c 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $BACKENDAI_CLUSTER_HOST"'
""".strip()


def cluster_specs(
    new_spec: NewSpec, hostnames: list[str], *, native: bool = False, command: str = MPIRUN, **over: object
) -> list[KernelSpec]:
    """Return the specs of a batch session: its main kernel runs the command, the others stay until it has ended."""
    session_id = uuid4()
    ids = [uuid4() for _ in hostnames]
    peers = [
        Peer(hostname=name, rank=rank, slots=rank + 1, ssh_port=ssh_port_of(ids[rank], native=native))
        for rank, name in enumerate(hostnames)
    ]
    return [
        new_spec(
            kernel_id=ids[rank],
            session_id=session_id,
            session_type="batch" if rank == 0 else "interactive",
            command=command,
            hostname=name,
            cluster_size=len(hostnames),
            peers=peers,
            keys=keys_of(session_id),
            environ={
                "ODD": HOSTILE,
                "NODE_RANK": str(rank),
                "NNODES": str(len(hostnames)),
                "BACKENDAI_CLUSTER_HOST": name,
            },
            **over,
        )
        for rank, name in enumerate(hostnames)
    ]


def run(backend: Backend, specs: list[KernelSpec], *, main_last: bool = False) -> str:
    """Return what the main kernel printed, once its program has ended well. ``main_last``: as with ``after``."""
    for spec in reversed(specs) if main_last else specs:
        backend.start(spec)
    ended = ended_of(backend, specs[0].kernel_id)
    log = backend.read_log(specs[0].kernel_id, limit=10_000)[0].decode()
    assert ended.exit_code == 0, log
    return log
