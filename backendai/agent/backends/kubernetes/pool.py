"""The total capacity of a pool: from its nodes if readable, else from the namespace's quota, else from the settings."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.images import named_images
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.base.wire.messages import Note

_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)} | {
    letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)
}


def thousandths(text: object) -> int:
    """Return an amount in thousandths of its unit, rounded down. Raises ValueError."""
    said = str(text).strip()
    unit = said[-2:] if said[-2:] in _BINARY else said[-1:] if said[-1:] in _DECIMAL and not said[-1:].isdigit() else ""
    factor = Decimal(_BINARY[unit]) if unit in _BINARY else _DECIMAL[unit]
    try:
        return int(Decimal(said.removesuffix(unit)) * factor * MILLI)
    except (InvalidOperation, OverflowError) as error:
        raise ValueError(f"{text!r} is not an amount") from error


_KEPT_SECONDS = 25.0
_VERSION_SECONDS = 900.0
_FORBIDDEN = (401, 403)
_ARCHITECTURE = "kubernetes.io/arch"
_LINUX_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
_RESOURCES = {"cpu": "cpu", "mem": "memory"}


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """``nodes``: None if they are not readable. ``quota``: the namespace's limit; None: no limit."""

    nodes: list[dict[str, Any]] | None = None
    away: Mapping[str, str] = field(default_factory=dict)  # nodes without new pods, and the reason
    quota: Slots | None = None
    version: str = ""
    images: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    architecture: str = ""  # of the pool's nodes, in Kubernetes' spelling
    is_mixed: bool = False  # the cluster also has nodes of other architectures


class KubernetesPool:
    """Reads the API at most every 25 s. Thread-safe. ``told``: amounts from the settings."""

    def __init__(self, api: Api, settings: PoolSettings, told: Slots | None, clock: Callable[[], float]) -> None:
        self._api, self._settings, self._told, self._clock = api, settings, told, clock
        self._reading, self._taken_at = PoolSnapshot(), -math.inf
        self._version, self._version_at = "", -math.inf
        self._lock = threading.Lock()

    def look(self) -> PoolSnapshot:
        """Return the newest state. Raises BackendError if the API does not answer."""
        with self._lock:
            if self._clock() - self._taken_at >= _KEPT_SECONDS:
                self._reading, self._taken_at = self._take(), self._clock()
            return self._reading

    def capacity(self) -> Slots:
        """Return the amounts of the pool that kernels can use."""
        reading = self.look()
        if reading.nodes is not None:
            whole = _sum(_room_of(node) for node in reading.nodes)
        elif reading.quota is not None:
            return reading.quota
        else:
            return self._told or Slots()
        if reading.quota is None:
            return whole
        return Slots({slot: min(amount, reading.quota.get(slot, amount)) for slot, amount in whole.items()})

    def widest(self) -> list[Slots]:
        """Return the capacities of the largest nodes, without nodes that another one exceeds in everything; empty:
        unknown."""
        rooms = {self._whole_room_of(node) for node in self.look().nodes or []}
        most = [room for room in rooms if not any(room != other and room.fits(other) for other in rooms)]
        return sorted(most, key=lambda room: (room["mem"], room["cpu"]), reverse=True)

    def architecture(self) -> str:
        """Return the architecture of most processors in the pool; empty: unknown."""
        told = self._settings.nodes.get(_ARCHITECTURE, "")
        return _LINUX_NAMES.get(told or self.look().architecture, told or self.look().architecture)

    def selector(self) -> dict[str, str]:
        """Return the labels of nodes for the pool's pods."""
        look = self.look()
        mixed = {_ARCHITECTURE: look.architecture} if look.is_mixed else {}
        return {**self._settings.nodes, **mixed}

    def gpus(self) -> int:
        """Return the number of GPUs on the pool's nodes."""
        nodes = self.look().nodes or []
        return sum(thousandths(_allocatable(node).get(self._settings.gpu, 0)) // MILLI for node in nodes)

    def images(self) -> dict[str, tuple[int, str]]:
        """Return the images that the nodes report."""
        return dict(self.look().images)

    def notes(self) -> list[Note]:
        """Return notes about the pool's capacity for administrators."""
        reading, notes = self.look(), list[Note]()
        if reading.nodes is None:
            source = "the quota of the namespace" if reading.quota else "BACKENDAI_AGENT_SLOTS"
            notes.append(
                Note(
                    code="no-node-rights",
                    message=f"The agent may not look at nodes: capacity comes from {source}, and only the cluster "
                    "finds out which sessions are wider than any node.",
                    fix="Bind the optional ClusterRole of the manifest to the agent's service account.",
                )
            )
        elif not reading.nodes:
            notes.append(
                Note(
                    code="no-nodes",
                    message="No node of the cluster is ready and belongs to this pool.",
                    fix="Check BACKENDAI_KUBERNETES_NODES, the taints of the nodes, BACKENDAI_KUBERNETES_TOLERATIONS.",
                )
            )
        else:
            largest = self.widest()[0]
            room = f"{largest['cpu'] / MILLI:g} CPUs and {format_size(largest['mem'] // MILLI)}"
            text = f"{len(reading.nodes)} nodes; the largest has room for a kernel of {room}."
            notes.append(Note(code="pool-nodes", message=text))
        for name, why in sorted(reading.away.items())[:8]:
            notes.append(Note(code="node-away", message=f"Node {name} gets no new sessions: {why}."))
        return notes

    def _take(self) -> PoolSnapshot:
        if self._clock() - self._version_at >= _VERSION_SECONDS:
            self._version, self._version_at = str(self._api.ask("GET", "/version")["gitVersion"]), self._clock()
        version, quota, found = self._version, self._quota(), self._nodes()
        if found is None:
            return PoolSnapshot(quota=quota, version=version)
        usual = _usual_architecture(found)
        away = {node["metadata"]["name"]: why for node in found if (why := self._why_not(node, usual))}
        nodes = [node for node in found if node["metadata"]["name"] not in away]
        is_mixed = len({_architecture_of(node) for node in found}) > 1
        return PoolSnapshot(nodes, away, quota, version, named_images(nodes), usual, is_mixed)

    def _whole_room_of(self, node: dict[str, Any]) -> Slots:
        gpus = thousandths(_allocatable(node).get(self._settings.gpu, 0)) // MILLI * MILLI
        return Slots({**_room_of(node), "cuda.device": gpus})

    def _nodes(self) -> list[dict[str, Any]] | None:
        selector = ",".join(f"{name}={value}" for name, value in self._settings.nodes.items())
        query = {"labelSelector": selector} if selector else None
        try:
            found: list[dict[str, Any]] = self._api.ask("GET", "/api/v1/nodes", query=query)["items"]
        except ApiError as error:
            if error.status in _FORBIDDEN:
                return None
            raise
        return found

    def _quota(self) -> Slots | None:
        """Return the tightest quota of the namespace."""
        try:
            found = self._api.ask("GET", self._api.path("resourcequotas"))["items"]
        except ApiError as error:
            if error.status in _FORBIDDEN:
                return None
            raise
        limits: dict[str, int] = {}
        for one in found:
            hard = one["spec"].get("hard") or {}
            for slot, resource in _RESOURCES.items():
                for name in (f"requests.{resource}", f"limits.{resource}", resource):
                    if name in hard:
                        amount = thousandths(hard[name])
                        limits[slot] = min(limits.get(slot, amount), amount)
        return Slots(limits) if limits else None

    def _why_not(self, node: dict[str, Any], usual: str) -> str:
        """Return why a node accepts no new pods; empty: it does."""
        ready: dict[str, Any] = next(
            (one for one in node["status"].get("conditions") or [] if one["type"] == "Ready"), {}
        )
        if ready.get("status") != "True":
            return f"it is not ready ({str(ready.get('message') or 'it says nothing').rstrip('.')})"
        if node["spec"].get("unschedulable"):
            return "it is cordoned"
        if (own := _architecture_of(node)) != usual:
            return f"its architecture is {own}; a pool has one ({usual}), and this one needs another agent"
        for taint in node["spec"].get("taints") or []:
            is_borne = any(_bears(toleration, taint) for toleration in self._settings.tolerations)
            if taint["effect"] != "PreferNoSchedule" and not is_borne:
                return f"it has the taint {taint['key']}"
        return ""


def _bears(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    same_value = toleration["operator"] == "Exists" or toleration.get("value") == taint.get("value", "")
    return toleration["key"] == taint["key"] and same_value and toleration.get("effect") in (None, taint["effect"])


def _allocatable(node: dict[str, Any]) -> dict[str, Any]:
    return node["status"].get("allocatable") or {}


def _architecture_of(node: dict[str, Any]) -> str:
    return str((node["status"].get("nodeInfo") or {}).get("architecture") or "")


def _usual_architecture(nodes: Iterable[dict[str, Any]]) -> str:
    """Return the architecture with the most processors."""
    cpus: dict[str, int] = {}
    for node in nodes:
        own = _architecture_of(node)
        cpus[own] = cpus.get(own, 0) + _room_of(node)["cpu"]
    return max(cpus, key=lambda one: (cpus[one], one), default="")


def _room_of(node: dict[str, Any]) -> Slots:
    room = _allocatable(node)
    return Slots({slot: thousandths(room.get(resource, 0)) for slot, resource in _RESOURCES.items()})


def _sum(rooms: Iterable[Slots]) -> Slots:
    whole: dict[str, int] = {}
    for room in rooms:
        for slot, amount in room.items():
            whole[slot] = whole.get(slot, 0) + amount
    return Slots(whole)
