"""Notes for administrators about a pool, with advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from backendai.agent.backends.kubernetes.api.names import FINALIZER
from backendai.agent.backends.kubernetes.state import deleted_for, is_over, runs
from backendai.base.wire.messages import Note

_STUCK_SECONDS = 120
Pod = dict[str, Any]


def pool_notes(fault: str, *, forwards: bool, on_node: bool) -> Iterable[Note]:
    """Yield notes about the pool's configuration, and about refused pods."""
    if fault:
        yield Note(
            code="kubernetes-refused",
            message=fault,
            fix="Give the agent's service account the Role of the manifest, in the namespace of the pool.",
        )
    if forwards:
        yield Note(
            code="ports-through-api",
            message="Apps are reached through the Kubernetes API, half a second for each connection.",
            fix="Run the agent in the cluster, or set BACKENDAI_KUBERNETES_REACH=direct where it reaches pods.",
        )
    if on_node:
        yield Note(
            code="home-on-node",
            message="Home folders are on the nodes' disks (emptyDir). One that exceeds its limit ends its session "
            "within two minutes; programs get no earlier error.",
            fix="Set BACKENDAI_KUBERNETES_SCRATCH_CLASS to give each home a volume of its own.",
        )


def notes_of_pods(pods: Sequence[Pod]) -> Iterable[Note]:
    """Yield notes about single pods: deleted ones that stay, and those with an unknown state."""
    stuck = [pod for pod in pods if deleted_for(pod) > _STUCK_SECONDS]
    silent = [pod for pod in stuck if runs(pod)]
    foreign = {one for pod in stuck if is_over(pod) for one in pod["metadata"].get("finalizers") or []} - {FINALIZER}
    if silent:
        nodes = sorted({str(pod["spec"].get("nodeName")) for pod in silent})
        yield Note(
            code="pods-unconfirmed",
            message=f"{len(silent)} pods were deleted, and their nodes do not say that they have ended: "
            f"{', '.join(nodes)}.",
            fix="Bring the node back, or delete it from the cluster once it is certainly off.",
        )
    if foreign:
        yield Note(
            code="pods-held",
            message=f"Pods of ended kernels stay because of finalizers of others: {', '.join(sorted(foreign))}.",
            fix="See to the controller that set them.",
        )
