"""Channels in which a program runs: a command, a login shell, or the server of files."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, cast

import asyncssh
from asyncssh.packet import SSHPacket

from backendai.base.wire.guest_frames import EXIT, INPUT, LARGEST, RESIZE, SIGNAL, STDERR, frame
from backendai.gates.gateways.tunnel import NoTunnel
from backendai.gates.sshgate.link import GuestRefused, Link, why
from backendai.gates.sshgate.visit import Visit

_FAILED = 255
_MOST_VARIABLES, _LONGEST_VARIABLE = 64, 4096
_VARIABLES = ("LANG", "LC_", "TERM", "COLORTERM", "EDITOR", "VISUAL", "PAGER", "TZ", "GIT_PROTOCOL", "VSCODE_")


class ShellChannel(asyncssh.SSHServerChannel[bytes]):
    """Keeps variables within limits, and takes commands that are no UTF-8."""

    def _process_env_request(self, packet: SSHPacket) -> bool:
        key, value = packet.get_string(), packet.get_string()
        packet.check_end()
        is_known = key.decode("ascii", "replace").startswith(_VARIABLES)
        if not is_known or len(self._env) >= _MOST_VARIABLES or len(key) + len(value) > _LONGEST_VARIABLE:
            return False
        self._env[key] = value
        return True

    def _process_exec_request(self, packet: SSHPacket) -> bool:
        command = packet.get_string()
        packet.check_end()
        return bool(self._start_session(command=command.decode("utf-8", "surrogateescape")))


class ShellSession(asyncssh.SSHServerSession[bytes]):
    """Relays one channel to one program in the kernel."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._question: dict[str, Any] = {"op": "exec", "command": None}
        self._early: list[bytes | None] = []
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting = bytearray()
        self._is_done = False

    @property
    def _is_bare(self) -> bool:
        return bool(self._question["op"] == "sftp")

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Keep the channel, which is counted since it was asked for."""
        self._channel = chan

    def pty_requested(self, term_type: str, term_size: Any, term_modes: Any) -> bool:
        """Take the terminal."""
        cols, rows, width, height = term_size
        self._question["pty"] = {"rows": rows, "cols": cols, "width": width, "height": height}
        self._question["env"] = {"TERM": term_type[:64] or "xterm"}
        return True

    def shell_requested(self) -> bool:
        """Take the request."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Take the command."""
        self._question["command"] = command
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Take the request for the server of files; there is no other."""
        self._question["op"] = subsystem
        return subsystem == "sftp"

    def session_started(self) -> None:
        """Start the program."""
        told = {_text(name): _text(value) for name, value in self._channel.get_environment_bytes().items()}
        self._question["env"] = told | self._question.get("env", {})
        self._task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            link = await self._visit.open(self._question)
        except (GuestRefused, NoTunnel) as error:
            self._apologise(why(error))
            return
        self._link = link
        if self._visit.entrance.notice:
            self._write(f"{self._visit.entrance.notice}\r\n".encode(), asyncssh.EXTENDED_DATA_STDERR)
        link.join(self)
        for data in self._early:
            self._pass(data)
        self._early.clear()
        self._channel.resume_reading()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Pass on what the client sends; what comes too early waits."""
        if self._link is None:
            self._early.append(data)
            self._channel.pause_reading()
            return
        self._visit.used(received=len(data))
        self._pass(data)

    def eof_received(self) -> bool:
        """Pass on the end; the channel stays open for the answer."""
        if self._link is None:
            self._early.append(None)
        else:
            self._pass(None)
        return True

    def _pass(self, data: bytes | None) -> None:
        link = cast(Link, self._link)
        if self._is_bare:
            link.write(data) if data is not None else link.end_writing()
        else:
            link.write(frame(INPUT, data or b""))

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """Pass on the size."""
        sides = {"rows": height, "cols": width, "width": pixwidth, "height": pixheight}
        if self._link is not None and not self._is_bare:
            self._link.write(frame(RESIZE, json.dumps(sides).encode()))

    def signal_received(self, signal: str) -> None:
        """Pass on the signal."""
        if self._link is not None and not self._is_bare:
            self._link.write(frame(SIGNAL, signal[:16].encode()))

    def break_received(self, msec: int) -> bool:
        """Take a break for an interrupt, as a terminal does."""
        self.signal_received("INT")
        return True

    def pause_writing(self) -> None:
        """The client does not keep up."""
        if self._link is not None:
            self._link.pause()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        if self._link is not None:
            self._link.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hang up the program."""
        self._visit.channels -= 1
        self._is_done = True
        if self._task is not None:
            self._task.cancel()
        if self._link is not None:
            self._link.close(at_once=not self._is_bare)

    def wait(self) -> None:
        """Take nothing from the client for now."""
        if not self._is_done:
            self._channel.pause_reading()

    def go_on(self) -> None:
        """Take from the client again."""
        if not self._is_done:
            self._channel.resume_reading()

    def hear(self, data: bytes) -> None:
        """Pass on what the program writes. After its exit nothing is read: the client may never close the channel."""
        if self._is_done:
            if self._link is not None:
                self._link.pause()
            return
        self._visit.used(sent=len(data), counts="pty" not in self._question)
        if self._is_bare:
            self._write(data)
            return
        self._waiting += data
        while not self._is_done and len(self._waiting) >= 5:
            size = int.from_bytes(self._waiting[1:5], "big")
            if size > LARGEST:
                self._apologise("The session does not answer sensibly.")
            elif len(self._waiting) < 5 + size:
                return
            else:
                kind, content = self._waiting[0], bytes(self._waiting[5 : 5 + size])
                del self._waiting[: 5 + size]
                self._take(kind, content)

    def _take(self, kind: int, content: bytes) -> None:
        if kind == EXIT:
            self._exit(content)
        else:
            self._write(content, asyncssh.EXTENDED_DATA_STDERR if kind == STDERR else None)

    def _write(self, data: bytes, kind: asyncssh.DataType = None) -> None:
        with contextlib.suppress(OSError):  # the client has closed the channel
            self._channel.write(data, kind)

    def _exit(self, content: bytes) -> None:
        self._is_done = True
        try:
            told = json.loads(content)
            if "signal" in told:
                self._channel.exit_with_signal(str(told["signal"])[:16], False, "")
            else:
                self._channel.exit(int(told["code"]) & 0xFF)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self._channel.exit(_FAILED)

    def hear_end(self) -> None:
        """The program has ended, or the connection to it."""
        if self._is_done:
            return
        if self._is_bare:
            self._is_done = True
            self._channel.exit(0)
        else:
            self._apologise("The connection to the session broke off.")

    def _apologise(self, text: str) -> None:
        self._is_done = True
        line = "".join(f"{line}\r\n" for line in text.splitlines()).encode(errors="replace")
        self._write(line, asyncssh.EXTENDED_DATA_STDERR)
        self._channel.exit(_FAILED)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
