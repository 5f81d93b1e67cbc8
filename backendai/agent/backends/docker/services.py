"""Services in containers: reached at the container's address, started by a detached exec."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from docker.errors import NotFound

from backendai.agent.backends.base import SH, BackendError, KernelGone
from backendai.agent.backends.docker.engine import Engine, container_name
from backendai.agent.backends.docker.networks.prepared.holder import NetworkHolders, holder_of
from backendai.agent.backends.docker.stream import open_stream
from backendai.agent.backends.service_host import ServiceHost, ServiceSource
from backendai.agent.backends.shared.services import LARGEST_DEFINITION, LAUNCH, LOG, MARK, TEMPORARY, definition_of

_GONE = "This kernel does not run any more."
_MOST_OF_ARCHIVE = LARGEST_DEFINITION + 10 * 2**10  # with the archive's own blocks
_LOG_SECONDS = 20.0


class DockerServices(ServiceHost):
    """The services of one agent's containers."""

    def __init__(self, engine: Engine, holders: NetworkHolders) -> None:
        self._engine = engine
        self._holders = holders

    def address(self, kernel_id: UUID) -> str:
        """Return the address of the container, or of the holder whose network it joined."""
        with self._engine.asking():
            found = self._engine.running(kernel_id)
            address = self._holders.address_for(found) if holder_of(found) else _address_in(found)
        if not address:
            raise BackendError("The kernel has no network: its network container was removed.", code="no-network")
        return address

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return the image's definition file, if it is a regular file of up to 64 KiB."""
        with self._engine.asking() as client:
            labels = self._engine.running(kernel_id)["Config"]["Labels"] or {}
            try:
                stream, about = client.get_archive(container_name(kernel_id), definition_of(service))
            except NotFound:
                return ServiceSource(None, labels)
            archive = _beginning(stream, _MOST_OF_ARCHIVE) if about["size"] <= LARGEST_DEFINITION else b""
        return ServiceSource(_only_file(archive), labels)

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the program by an exec; returns the exec's id."""
        with self._engine.asking():
            self._engine.running(kernel_id)
            command = [SH, "-c", LAUNCH, service, *command]
            variables = {**environ, MARK: service, **TEMPORARY}
            return self._engine.make_exec(kernel_id, command, starts=True, environment=variables)

    def exit_code(self, handle: str) -> int | None:
        """Return the exec's exit code. An exec that the engine no longer knows has ended with its container."""
        with self._engine.asking() as client:
            try:
                found = client.exec_inspect(handle)
            except NotFound as error:
                raise KernelGone(_GONE) from error
        return None if found["Running"] else int(found["ExitCode"] or 0)

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the end of the file that receives the program's output. Reads ``limit`` bytes, as programs in the
        container are its owner's: they may write without end, or nothing for 20 s."""
        with self._engine.asking():
            self._engine.running(kernel_id)
            made = self._engine.make_exec(kernel_id, [SH, "-c", LOG, service, str(limit)])
        return asyncio.run(self._output_of(made, limit))

    async def _output_of(self, made: str, limit: int) -> bytes:
        seen = bytearray()
        try:
            async with asyncio.timeout(_LOG_SECONDS):
                path = f"/v{self._engine.api_version}/exec/{made}/start"
                stream = await open_stream(self._engine.url, "POST", path, {"Tty": False, "Detach": False})
                try:
                    async for piece in stream.frames():
                        seen += piece
                        if len(seen) >= limit:
                            break
                finally:
                    await stream.close()
        except TimeoutError as error:
            text = "Reading the app's output in the session took longer than {seconds} s."
            raise BackendError(text, seconds=round(_LOG_SECONDS)) from error
        return bytes(seen[:limit])


def _address_in(container: dict[str, Any]) -> str:
    networks = (container["NetworkSettings"]["Networks"] or {}).values()
    return next((str(one["IPAddress"]) for one in networks if one.get("IPAddress")), "")


def _beginning(pieces: Iterable[bytes], limit: int) -> bytes:
    """Return the first ``limit`` bytes: the archive of a directory has any size."""
    seen = bytearray()
    for piece in pieces:
        seen += piece
        if len(seen) > limit:
            break
    return bytes(seen[:limit])


def _only_file(archive: bytes) -> bytes | None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            entry = tar.next()
            content = tar.extractfile(entry) if entry and entry.isfile() else None
            return content.read(LARGEST_DEFINITION) if content else None
    except tarfile.TarError:
        return None
