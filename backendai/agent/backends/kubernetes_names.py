"""The names of what the backend makes in a namespace, and the labels by which it is found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backendai.wire.messages import KernelSpec

PREFIX = "ai.backend/"
DEPLOYMENT, AGENT, KERNEL, SESSION = (f"{PREFIX}{name}" for name in ("deployment", "agent", "kernel", "session"))
GENERATION, PART = f"{PREFIX}generation", f"{PREFIX}part"
STOPPED, IMAGE, CLUSTER, LIMIT = (f"{PREFIX}{name}" for name in ("stopped", "image", "cluster-size", "memory"))
FINALIZER = f"{PREFIX}end-is-told"  # keeps the end of a pod until the portal has heard of it
MAIN = "main"  # the container


@dataclass(frozen=True, slots=True)
class Ours:
    """One agent of one deployment."""

    deployment: str
    agent: str

    def labels(self) -> dict[str, str]:
        """Return what everything has that this agent makes."""
        return {DEPLOYMENT: self.deployment, AGENT: self.agent}

    def selector(self, *more: str) -> str:
        """Return the API's filter for it."""
        return ",".join([*(f"{name}={value}" for name, value in self.labels().items()), *more])

    def has(self, found: Mapping[str, Any]) -> bool:
        """Return whether an object is of this agent."""
        labels = labels_of(found)
        return all(labels.get(name) == value for name, value in self.labels().items())


def labels_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of an object."""
    return found["metadata"].get("labels") or {}


def notes_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object."""
    return found["metadata"].get("annotations") or {}


def pod_name(kernel_id: UUID) -> str:
    """Return the name of a kernel's pod: the API's uniqueness of names makes a start happen once."""
    return f"krn-{kernel_id}"


def kernel_labels(spec: KernelSpec) -> dict[str, str]:
    """Return the labels that tell one kernel from the others of its agent."""
    return {
        KERNEL: str(spec.kernel_id),
        SESSION: str(spec.session_id),
        GENERATION: str(spec.generation),
    }
