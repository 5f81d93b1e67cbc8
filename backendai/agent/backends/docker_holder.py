"""Network holders: containers whose one process waits for ever, so that the engine has a network ready for a kernel.

Making a container's network takes the engine two thirds of a start. A kernel that joins the network of a container
that is there already starts in a third of the time. A holder has no rights, sees nothing, and serves one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from docker.errors import APIError, ImageNotFound, NotFound

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker_create import NETWORK_SYSCTLS
from backendai.agent.backends.docker_engine import PREFIX, Engine
from backendai.agent.backends.docker_holder_image import ARCHITECTURES, IMAGE, image_archive
from backendai.agent.kernel_runtime import SHARING_RUNTIMES

HOSTNAME = "main1"  # joining kernels take it over: every lone kernel has this name
_LABEL = f"{PREFIX}network"
_JOINED = "container:"
_NOBODY = "65534:65534"
_MEMORY = 16 * 2**20
_PROCESSES = 16


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that holds a network, under its own id and the engine's; ``joined``: some container uses it. Its
    network is the same as long as ``started_at`` is: a restart gives it a new one, without those who had joined."""

    holder_id: UUID
    container_id: str
    address: str
    running: bool
    joined: bool
    started_at: datetime

    @property
    def is_usable(self) -> bool:
        """Whether a kernel could join it."""
        return self.running and bool(self.address) and not self.joined


class Holders:
    """Makes, lists and removes the network holders of one agent on the network of that name."""

    def __init__(self, engine: Engine, network: str) -> None:
        self._engine = engine
        self._network = network

    def make(self, holder_id: UUID, architecture: str) -> Holder:
        """Return a new holder, running and with an address; anything less is removed again, and a BackendError. Raises
        what the engine raises."""
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

    def is_unchanged(self, holder: Holder) -> bool:
        """Return whether an unused holder still runs, with the network that it had."""
        found = self._inspected(holder.container_id)
        return found is not None and self._holder(found) == holder

    def listed(self) -> tuple[list[Holder], set[UUID]]:
        """Return all our holders, and the running kernels that have lost theirs: it is gone, or was restarted."""
        entries = self._engine.client.containers(all=True, filters={"label": self._engine.label_filter()})
        joined = {holder_of(entry) for entry in entries}
        seen = [self._inspected(entry["Id"]) for entry in entries if _is_holder(entry["Labels"], entry["Names"] or [])]
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
        """Return the address of an inspected container that joined a holder; empty when the holder is gone."""
        found = self._inspected(holder_of(container))
        return self._address(found) if found is not None else ""

    def leave(self, container: dict[str, Any]) -> None:
        """Remove the holder of a kernel whose inspected container was removed, if it had joined one."""
        if holder_of(container):
            self.remove(holder_of(container))

    def remove(self, container_id: str) -> None:
        """Remove a holder of this deployment; gone already is success."""
        found = self._inspected(container_id)
        if found is None:
            return
        labels = found["Config"]["Labels"] or {}
        if labels.get(f"{PREFIX}deployment") == self._engine.deployment and _is_holder(labels, [found["Name"]]):
            self._engine.discard(container_id)

    def _holder(self, found: dict[str, Any], *, joined: bool = False) -> Holder:
        return Holder(
            UUID(found["Config"]["Labels"][_LABEL]),
            found["Id"],
            self._address(found),
            running=found["State"]["Status"] == "running",
            joined=joined,
            started_at=_started_at(found),
        )

    def _is_cut_off(self, kernel: dict[str, Any], holder: Holder | None) -> bool:
        """Return whether a kernel, as it was listed, runs without the network that it joined."""
        if holder is not None and holder.started_at.timestamp() < kernel["Created"]:
            return False  # nearly always: a kernel is made after its holder was started
        found = self._inspected(kernel["Id"])
        if found is None or not found["State"]["Running"]:
            return False
        return holder is None or _started_at(found) < holder.started_at

    def _inspected(self, container_id: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._engine.client.inspect_container(container_id)
        except NotFound:
            return None
        return found

    def _address(self, container: dict[str, Any]) -> str:
        networks = container["NetworkSettings"]["Networks"] or {}
        return str((networks.get(self._network) or {}).get("IPAddress", ""))


def can_hold(info: dict[str, Any]) -> bool:
    """Return whether holders work on the engine that describes itself so."""
    return info.get("Architecture") in ARCHITECTURES and info.get("DefaultRuntime") in SHARING_RUNTIMES


def joining(body: dict[str, Any], holder: Holder) -> dict[str, Any]:
    """Return a kernel's create call changed to join the holder's network.

    Name, addresses and network settings then come from the holder; the engine refuses a call that has its own.
    """
    host = dict(body["HostConfig"])
    host["Sysctls"] = {name: value for name, value in host["Sysctls"].items() if not name.startswith("net.")}
    host["NetworkMode"] = _JOINED + holder.container_id
    kept = {name: value for name, value in body.items() if name not in ("Hostname", "NetworkingConfig")}
    return kept | {"HostConfig": host}


def holder_of(container: dict[str, Any]) -> str:
    """Return the id of the container whose network an inspected or listed one joined; empty when it has its own."""
    mode: str = container["HostConfig"]["NetworkMode"]
    return mode.removeprefix(_JOINED) if mode.startswith(_JOINED) else ""


def _name(holder_id: UUID) -> str:
    return f"net-{holder_id}"


def _is_holder(labels: dict[str, str], names: list[str]) -> bool:
    """An image committed from a holder hands its labels on, but not its name."""
    return f"/net-{labels.get(_LABEL)}" in names


def _started_at(container: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(container["State"]["StartedAt"])


def _body(labels: dict[str, str], network: str) -> dict[str, Any]:
    return {
        "Image": IMAGE,
        "Hostname": HOSTNAME,
        "User": _NOBODY,
        "StopSignal": "SIGKILL",  # the first process of a container ignores the polite ones
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
