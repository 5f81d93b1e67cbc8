"""Services in containers: reached at the container's address, started by a detached exec."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from docker.errors import APIError, NotFound

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.backends.docker_end import is_alive
from backendai.agent.backends.docker_engine import Engine, container_name
from backendai.agent.backends.docker_holder import Holders, holder_of
from backendai.agent.backends.service_script import LAUNCH, MARK
from backendai.agent.service_host import ServiceHost, ServiceSource

_DEFINITIONS = "/etc/backend.ai/service-defs"
_FOLDER = {"BACKENDAI_APP_FOLDER": "/tmp"}  # noqa: S108 - of the container
_LARGEST_DEFINITION = 64 * 2**10
_GONE = "This kernel does not run any more."

# The session's user could create a named pipe here, on which tail would block for ever.
_LOG = 'file=/tmp/.app-$BACKENDAI_APP.log; [ ! -f "$file" ] || tail -c "$1" "$file"'


class DockerServices(ServiceHost):
    """The services of one agent's containers."""

    def __init__(self, engine: Engine, holders: Holders) -> None:
        self._engine = engine
        self._holders = holders

    def address(self, kernel_id: UUID) -> str:
        """Return the address of the container, or of the holder whose network it joined."""
        with self._engine.asking():
            found = self._running(kernel_id)
            address = self._holders.address_for(found) if holder_of(found) else _address_in(found)
        if not address:
            raise BackendError("The kernel has no network: its network container was removed.", code="no-network")
        return address

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return the image's definition file, if it is a regular file of up to 64 KiB."""
        with self._engine.asking() as client:
            labels = self._running(kernel_id)["Config"]["Labels"] or {}
            try:
                stream, about = client.get_archive(container_name(kernel_id), f"{_DEFINITIONS}/{service}.json")
            except NotFound:
                return ServiceSource(None, labels)
            archive = b"".join(stream) if about["size"] <= _LARGEST_DEFINITION else b""
        return ServiceSource(_only_file(archive), labels)

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the program by an exec; returns the exec's id."""
        with self._engine.asking() as client:
            made = self._exec(kernel_id, ["sh", "-c", LAUNCH, service, *command], {**environ, MARK: service, **_FOLDER})
            client.exec_start(made, detach=True)
        return made

    def exit_code(self, handle: str) -> int | None:
        """Return the exec's exit code. An exec that the engine no longer knows has ended with its container."""
        with self._engine.asking() as client:
            try:
                found = client.exec_inspect(handle)
            except NotFound as error:
                raise KernelGone(_GONE) from error
        return None if found["Running"] else int(found["ExitCode"] or 0)

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the end of the file that receives the program's output."""
        with self._engine.asking() as client:
            made = self._exec(kernel_id, ["sh", "-c", _LOG, service, str(limit)], {MARK: service})
            output, _ = client.exec_start(made, demux=True)
        return bytes(output or b"")

    def _exec(self, kernel_id: UUID, command: list[str], environ: Mapping[str, str]) -> str:
        self._running(kernel_id)
        try:
            made = self._engine.client.exec_create(container_name(kernel_id), command, environment=dict(environ))
        except APIError as error:
            if error.status_code in (404, 409):
                raise KernelGone(_GONE) from error
            raise
        return str(made["Id"])

    def _running(self, kernel_id: UUID) -> dict[str, Any]:
        found = self._engine.find(kernel_id)
        if found is None or not is_alive(found):
            raise KernelGone(_GONE)
        return found


def _address_in(container: dict[str, Any]) -> str:
    networks = (container["NetworkSettings"]["Networks"] or {}).values()
    return next((str(one["IPAddress"]) for one in networks if one.get("IPAddress")), "")


def _only_file(archive: bytes) -> bytes | None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            entry = tar.next()
            content = tar.extractfile(entry) if entry and entry.isfile() else None
            return content.read(_LARGEST_DEFINITION) if content else None
    except tarfile.TarError:
        return None
