"""One connection to the guest of a kernel: a question, its answer, then bytes both ways."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, Protocol, cast

from django.utils import timezone

from backendai.gates.gateways.tickets import ticket_for
from backendai.gates.gateways.tunnel import NoTunnel, open_upgraded
from backendai.gates.sshgate.entrances import ShellTarget

_ANSWER_SECONDS = 40.0
_LONGEST_ANSWER = 64 * 1024
_KEPT_FREE = 128 * 1024
_FINISH_SECONDS = 60.0
_RESET = struct.pack("ii", 1, 0)  # no lingering: the other side learns of it though it reads nothing


class GuestRefused(Exception):
    """The guest does not do what was asked; the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Sink(Protocol):
    """Where the guest's bytes go."""

    def hear(self, data: bytes) -> None:
        """Take bytes."""

    def hear_end(self) -> None:
        """Take the end of the bytes; a second time, that of the connection."""

    def wait(self) -> None:
        """Send no more: the guest does not keep up."""

    def go_on(self) -> None:
        """Send again."""


class Link(asyncio.Protocol):
    """The connection. Until a sink is joined, what comes is kept, and no more is read."""

    def __init__(self, transport: asyncio.Transport, rest: bytes) -> None:
        self._transport, self._kept, self._sink = transport, bytearray(rest), cast(Sink | None, None)
        self._is_lost = self._has_ended = False
        self._more = asyncio.Event()
        transport.set_protocol(self)
        transport.set_write_buffer_limits(_KEPT_FREE)

    async def ask(self, question: Mapping[str, Any], *, slowness: int = 1) -> None:
        """Put the question and wait until it is granted. ``slowness``: that of the agent. Raises GuestRefused."""
        self._transport.write(json.dumps(dict(question)).encode() + b"\n")
        self._transport.resume_reading()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS * slowness):
                while b"\n" not in self._kept and len(self._kept) < _LONGEST_ANSWER and not self._is_lost:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise GuestRefused("no-guest", "The session does not answer: try again.") from None
        self.pause()
        line, _, rest = self._kept.partition(b"\n")
        _check(line)
        self._kept = bytearray(rest)
        if question["op"] == "dial":
            self._transport.write(b"\n")  # from here on the bytes are those of the port

    def join(self, sink: Sink) -> None:
        """Let bytes flow to the sink from now on."""
        self._sink = sink
        if self._kept:
            sink.hear(bytes(self._kept))
            self._kept.clear()
        if self._is_lost:
            sink.hear_end()
        else:
            self.resume()

    def write(self, data: bytes) -> None:
        """Send; after the end nothing is sent."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def end_writing(self) -> None:
        """Say that no more comes."""
        if not self._transport.is_closing() and self._transport.can_write_eof():
            self._has_ended = True
            self._transport.write_eof()
            if self._is_lost:
                self._transport.close()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._transport.is_closing() and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def finish(self) -> None:
        """Close it when what was written is sent; cut it if that takes long."""
        if not self._transport.is_closing():
            self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_FINISH_SECONDS, self._transport.abort)

    def close(self, *, at_once: bool = False) -> None:
        """Cut it; the guest hangs up the program. ``at_once``: even one that does not take what was sent to it."""
        if at_once and not self._transport.is_closing():
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass it on, or keep it until somebody listens."""
        if self._sink is None:
            self._kept += data
            self._more.set()
        else:
            self._sink.hear(data)

    def eof_received(self) -> bool:
        """Tell the sink; the other direction stays open until its end is said too."""
        self._end()
        return not self._has_ended

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the sink."""
        self._end()

    def pause_writing(self) -> None:
        """The guest does not keep up."""
        if self._sink is not None:
            self._sink.wait()

    def resume_writing(self) -> None:
        """The guest keeps up again."""
        if self._sink is not None:
            self._sink.go_on()

    def _end(self) -> None:
        self._is_lost = True
        self._more.set()
        if self._sink is not None:
            self._sink.hear_end()


async def open_link(target: ShellTarget, question: Mapping[str, Any]) -> Link:
    """Return a connection whose question was granted. Raises GuestRefused, NoTunnel."""
    headers = ticket_for(target.kernel_id, target.generation, "shell", timezone.now())
    path = f"/kernels/{target.kernel_id}/guest"
    transport, rest = await open_upgraded(target.gateway_url, path, "guest", headers, slowness=target.slowness)
    link = Link(transport, rest)
    try:
        await link.ask(question, slowness=target.slowness)
    except BaseException:
        link.close()
        raise
    return link


def _check(line: bytes | bytearray) -> None:
    """Refuse what is no grant. Guests belong to people: what one says is shown to its own user only."""
    try:
        said = json.loads(line)
        error = said.get("error")
        if error is None:
            return
        code, message = str(error["code"])[:64], str(error["message"])[:500]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise GuestRefused("no-guest", "The session does not answer sensibly: try again.") from None
    raise GuestRefused(code, "".join(char for char in message if char.isprintable()))


def why(error: Exception) -> str:
    """Return what a person is told about a link that does not open."""
    if isinstance(error, GuestRefused | NoTunnel):
        return str(error.message)
    return "The session cannot be reached now: try again."
