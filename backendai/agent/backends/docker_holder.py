"""Network holders: containers whose one process waits for ever, so that the engine has a network ready for a kernel.

Making a container's network takes the engine two thirds of a start. A kernel that joins the network of a container
that is there already starts in a third of the time. A holder has no rights, sees nothing, and serves one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from docker.errors import APIError, ImageNotFound, NotFound

from backendai.agent.backends.docker_create import NETWORK_SYSCTLS
from backendai.agent.backends.docker_engine import PREFIX, Engine
from backendai.agent.backends.docker_holder_image import ARCHITECTURES, IMAGE, image_archive

HOSTNAME = "main1"  # joining kernels take it over: every lone kernel has this name
_LABEL = f"{PREFIX}network"
_JOINED = "container:"
_NOBODY = "65534:65534"
_MEMORY = 16 * 2**20
_PROCESSES = 16
# Runtimes whose containers are processes of the machine's own Linux kernel: others cannot share a network.
SHARING_RUNTIMES = frozenset({"runc", "crun", "io.containerd.runc.v2", "nvidia"})


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that holds a network, under its own id and the engine's; ``joined``: some container uses it."""

    holder_id: UUID
    container_id: str
    address: str
    running: bool = True
    joined: bool = False

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
        """Return a new holder, running; what cannot be started is removed again."""
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
            return Holder(holder_id, made["Id"], self._address(client.inspect_container(made["Id"])))
        except APIError:
            self._engine.discard(made["Id"])
            raise

    def listed(self) -> tuple[list[Holder], dict[UUID, str]]:
        """Return all our holders, and for each running kernel that joined one the holder's container."""
        entries = self._engine.client.containers(all=True, filters={"label": self._engine.label_filter()})
        joined = {holder_of(entry) for entry in entries}
        holders = [
            Holder(
                UUID(entry["Labels"][_LABEL]),
                entry["Id"],
                self._address(entry),
                running=entry["State"] == "running",
                joined=entry["Id"] in joined,
            )
            for entry in entries
            if _is_holder(entry["Labels"], entry["Names"] or [])
        ]
        kernels = {
            UUID(entry["Labels"][f"{PREFIX}kernel"]): holder_of(entry)
            for entry in entries
            if entry["State"] == "running" and holder_of(entry) and f"{PREFIX}kernel" in entry["Labels"]
        }
        return holders, kernels

    def address_for(self, container: dict[str, Any]) -> str:
        """Return the address of an inspected container that joined a holder; empty when the holder is gone."""
        try:
            return self._address(self._engine.client.inspect_container(holder_of(container)))
        except NotFound:
            return ""

    def leave(self, container: dict[str, Any]) -> None:
        """Remove the holder of a kernel whose inspected container was removed, if it had joined one."""
        if holder_of(container):
            self.remove(holder_of(container))

    def remove(self, container_id: str) -> None:
        """Remove a holder of this deployment; gone already is success."""
        try:
            found = self._engine.client.inspect_container(container_id)
        except NotFound:
            return
        labels = found["Config"]["Labels"] or {}
        if labels.get(f"{PREFIX}deployment") == self._engine.deployment and _is_holder(labels, [found["Name"]]):
            self._engine.discard(container_id)

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
