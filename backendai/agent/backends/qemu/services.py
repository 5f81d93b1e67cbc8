"""Services in virtual machines: reached through the channel, started as detached programs."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from backendai.agent.backends.base import SH
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.qemu.channel.ask import ChannelRefused, ask, open_stream, output_of
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.backends.service_host import ServiceHost, ServiceSource
from backendai.agent.backends.shared.services import LAUNCH, LOG, MARK, TEMPORARY
from backendai.base.core.service_ports import LABEL
from backendai.base.process.slowness import allowed


class QemuServices(ServiceHost):
    """``running`` returns the folder of a running kernel, or raises KernelGone. ``slower``: the factor by which these
    virtual machines are slower."""

    carries = True

    def __init__(self, running: Callable[[UUID], KernelFolder], slower: Callable[[], int]) -> None:
        self._running, self._slower = running, slower

    def longest_start(self) -> float:
        """Return the longest start. JupyterLab takes half a minute in an emulated machine, and minutes on a busy
        host."""
        return allowed(self.start_seconds, own=self._slower())

    def address(self, kernel_id: UUID) -> str:
        """Return "", as no address of this machine leads into a guest. Raises KernelGone."""
        self._running(kernel_id)
        return ""

    async def connect(self, kernel_id: UUID, port: int) -> socket.socket | None:
        """Return a socket connected to a port of the guest's loopback; None if nothing listens."""
        folder = await asyncio.to_thread(self._running, kernel_id)
        try:
            connection, _ = await asyncio.to_thread(open_stream, folder.path, "t", [str(port)])
        except ChannelRefused as refusal:
            if refusal.number in (errno.ECONNREFUSED, errno.ECONNRESET):
                return None
            raise
        connection.setblocking(False)
        return connection

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return the image's definition and labels from its conversion, with the kernel's ports."""
        folder = self._running(kernel_id)
        launch, spec = folder.read("launch"), folder.spec()
        ports = spec.environ.get("BACKENDAI_SERVICE_PORTS", "") if spec else ""
        labels = {**launch.get("labels", {}), **({LABEL: ports} if ports else {})}
        text = launch.get("definitions", {}).get(service)
        return ServiceSource(text.encode() if isinstance(text, str) else None, labels)

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the program; returns the kernel and its stream's number."""
        folder = self._running(kernel_id)
        words = program_words([SH, "-c", LAUNCH, service, *command], {**environ, MARK: service, **TEMPORARY})
        connection, number = open_stream(folder.path, "d", words)
        connection.close()
        return f"{kernel_id}:{number}"

    def exit_code(self, handle: str) -> int | None:
        """Return the exit code from the supervisor, which outlives the agent; None while the program runs."""
        kernel_id, _, number = handle.partition(":")
        said = ask(self._running(UUID(kernel_id)).path, {"ended": int(number)})
        return None if said.get("running") else int(said.get("exit_code") or 0)

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the end of the file with the program's output."""
        words = program_words([SH, "-c", LOG, service, str(limit)], {})
        return output_of(self._running(kernel_id).path, words)[0]
