"""Names and labels of the backend's objects in a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backendai.base.wire.messages import KernelSpec

PREFIX = "ai.backend/"
DEPLOYMENT, AGENT, KERNEL, SESSION = (f"{PREFIX}{name}" for name in ("deployment", "agent", "kernel", "session"))
GENERATION, PART = f"{PREFIX}generation", f"{PREFIX}part"
STOPPED, IMAGE, CLUSTER, LIMIT = (f"{PREFIX}{name}" for name in ("stopped", "image", "cluster-size", "memory"))
FINALIZER = f"{PREFIX}end-is-told"  # keeps a pod until the portal knows how it ended
MAIN = "main"  # the name of the container


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """One agent of one deployment."""

    deployment: str
    agent: str

    def labels(self) -> dict[str, str]:
        """Return the labels of all objects that this agent creates."""
        return {DEPLOYMENT: self.deployment, AGENT: self.agent}

    def selector(self, *more: str) -> str:
        """Return the API's selector for this agent's objects."""
        return ",".join([*(f"{name}={value}" for name, value in self.labels().items()), *more])

    def has(self, found: Mapping[str, Any]) -> bool:
        """Return whether an object belongs to this agent."""
        labels = labels_of(found)
        return all(labels.get(name) == value for name, value in self.labels().items())


def labels_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of an object."""
    return found["metadata"].get("labels") or {}


def notes_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object."""
    return found["metadata"].get("annotations") or {}


def pod_name(kernel_id: UUID) -> str:
    """Return the name of a kernel's pod. As names are unique, a kernel starts only once."""
    return f"krn-{kernel_id}"


def kernel_labels(spec: KernelSpec) -> dict[str, str]:
    """Return the labels that identify a kernel."""
    return {
        KERNEL: str(spec.kernel_id),
        SESSION: str(spec.session_id),
        GENERATION: str(spec.generation),
    }
