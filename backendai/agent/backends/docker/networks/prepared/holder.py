"""Network holders: idle containers whose networks the engine has prepared for later kernels.

Creating a container's network takes two thirds of a start, so a kernel that joins an existing container's network
starts in a third of the time. A holder has no rights and no access, and serves one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from docker.errors import APIError, ImageNotFound

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker.create import NETWORK_SYSCTLS
from backendai.agent.backends.docker.engine import PREFIX, Engine
from backendai.agent.backends.docker.networks.prepared.holder_image import ARCHITECTURES, IMAGE, image_archive
from backendai.agent.settings.kernel_runtime import SHARING_RUNTIMES

HOSTNAME = "main1"  # a kernel that joins gets the holder's host name, which all single kernels share
_LABEL = f"{PREFIX}network"
_JOINED = "container:"
_NOBODY = "65534:65534"
_MEMORY = 16 * 2**20
_PROCESSES = 16


@dataclass(frozen=True, slots=True)
class NetworkHolder:
    """A container that holds a network. ``joined``: a kernel uses it. ``started_at`` identifies its network: a restart
    creates another one, which kernels that had joined do not have."""

    holder_id: UUID
    container_id: str
    address: str
    running: bool
    joined: bool
    started_at: datetime

    @property
    def is_usable(self) -> bool:
        """Whether a kernel could join its network."""
        return self.running and bool(self.address) and not self.joined


class NetworkHolders:
    """Creates, lists and removes one agent's network holders on the network ``network``."""

    def __init__(self, engine: Engine, network: str) -> None:
        self._engine = engine
        self._network = network

    def make(self, holder_id: UUID, architecture: str) -> NetworkHolder:
        """Create and return a running holder with an address. Raises BackendError after removing a failed one, and the
        engine's errors."""
        client, name = self._engine.client, _name(holder_id)
        body = _body(self._engine.labels() | {_LABEL: str(holder_id)}, self._network)
        try:
            made = client.create_container_from_config(body, name)
        except ImageNotFound:
            for _ in client.load_image(image_archive(architecture)):
                pass
            made = client.create_container_from_config(body, name)
        try:
            client.start(made["Id"])
            holder = self._holder(client.inspect_container(made["Id"]))
        except APIError:
            self._engine.discard(made["Id"])
            raise
        if not holder.is_usable:
            self._engine.discard(made["Id"])
            fault = "has no address" if holder.running else "ended at once"
            raise BackendError("A network holder {fault} on the network {network}.", fault=fault, network=self._network)
        return holder

    def is_unchanged(self, holder: NetworkHolder) -> bool:
        """Return whether an unused holder still runs with the same network."""
        found = self._engine.inspect(holder.container_id)
        return found is not None and self._holder(found) == holder

    def listed(self) -> tuple[list[NetworkHolder], set[UUID]]:
        """Return all holders, and the running kernels whose holder was removed or restarted."""
        entries = self._engine.client.containers(all=True, filters={"label": self._engine.label_filter()})
        joined = {holder_of(entry) for entry in entries}
        seen = [
            self._engine.inspect(entry["Id"]) for entry in entries if _is_holder(entry["Labels"], entry["Names"] or [])
        ]
        holders = [self._holder(one, joined=one["Id"] in joined) for one in seen if one is not None]
        running = {one.container_id: one for one in holders if one.running}
        kernels = [
            entry
            for entry in entries
            if entry["State"] == "running" and holder_of(entry) and f"{PREFIX}kernel" in entry["Labels"]
        ]
        cut_off = {
            UUID(entry["Labels"][f"{PREFIX}kernel"])
            for entry in kernels
            if self._is_cut_off(entry, running.get(holder_of(entry)))
        }
        return holders, cut_off

    def address_for(self, container: dict[str, Any]) -> str:
        """Return the address of an inspected container that joined a holder; empty if the holder is gone."""
        found = self._engine.inspect(holder_of(container))
        return self._address(found) if found is not None else ""

    def leave(self, container: dict[str, Any]) -> None:
        """Remove the holder that a removed kernel (inspected container) had joined, if any."""
        if holder_of(container):
            self.remove(holder_of(container))

    def remove(self, container_id: str) -> None:
        """Remove a holder of this deployment. Does nothing if it is gone."""
        found = self._engine.inspect(container_id)
        if found is None:
            return
        labels = found["Config"]["Labels"] or {}
        if labels.get(f"{PREFIX}deployment") == self._engine.deployment and _is_holder(labels, [found["Name"]]):
            self._engine.discard(container_id)

    def _holder(self, found: dict[str, Any], *, joined: bool = False) -> NetworkHolder:
        return NetworkHolder(
            UUID(found["Config"]["Labels"][_LABEL]),
            found["Id"],
            self._address(found),
            running=found["State"]["Status"] == "running",
            joined=joined,
            started_at=_started_at(found),
        )

    def _is_cut_off(self, kernel: dict[str, Any], holder: NetworkHolder | None) -> bool:
        """Return whether a kernel (listed container) runs without the network that it joined."""
        if holder is not None and holder.started_at.timestamp() < kernel["Created"]:
            return False  # the usual case: the kernel was created after its holder's start
        found = self._engine.inspect(kernel["Id"])
        if found is None or not found["State"]["Running"]:
            return False
        return holder is None or _started_at(found) < holder.started_at

    def _address(self, container: dict[str, Any]) -> str:
        networks = container["NetworkSettings"]["Networks"] or {}
        return str((networks.get(self._network) or {}).get("IPAddress", ""))


def can_hold(info: dict[str, Any]) -> bool:
    """Return whether an engine with this description supports holders."""
    return info.get("Architecture") in ARCHITECTURES and info.get("DefaultRuntime") in SHARING_RUNTIMES


def joining(body: dict[str, Any], holder: NetworkHolder) -> dict[str, Any]:
    """Return a kernel's create call changed to join the holder's network.

    Host name, addresses and network settings come from the holder; the engine refuses a call with its own.
    """
    host = dict(body["HostConfig"])
    host["Sysctls"] = {name: value for name, value in host["Sysctls"].items() if not name.startswith("net.")}
    host["NetworkMode"] = _JOINED + holder.container_id
    kept = {name: value for name, value in body.items() if name not in ("Hostname", "NetworkingConfig")}
    return kept | {"HostConfig": host}


def holder_of(container: dict[str, Any]) -> str:
    """Return the id of the container whose network this (inspected or listed) container joined; empty for its own
    network."""
    mode: str = container["HostConfig"]["NetworkMode"]
    return mode.removeprefix(_JOINED) if mode.startswith(_JOINED) else ""


def _name(holder_id: UUID) -> str:
    return f"net-{holder_id}"


def _is_holder(labels: dict[str, str], names: list[str]) -> bool:
    """Return whether a container is a holder. Checks the name, as an image committed from a holder passes its labels
    on."""
    return f"/net-{labels.get(_LABEL)}" in names


def _started_at(container: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(container["State"]["StartedAt"])


def _body(labels: dict[str, str], network: str) -> dict[str, Any]:
    return {
        "Image": IMAGE,
        "Hostname": HOSTNAME,
        "User": _NOBODY,
        "StopSignal": "SIGKILL",  # a container's first process ignores other signals without a handler
        "Labels": labels,
        "HostConfig": {
            "NetworkMode": network,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "IpcMode": "none",
            "Memory": _MEMORY,
            "MemorySwap": _MEMORY,
            "PidsLimit": _PROCESSES,
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            "Sysctls": NETWORK_SYSCTLS,
        },
    }
