"""One interpreter of a language: a program (see ``runners``) that is told what to run and says what became of it.

The two speak JSON lines over a socket: down ``run``, ``input``, ``interrupt``, ``complete``, up ``ready``, ``item``,
``ask``, ``done``, ``completion``, ``failed``. What the program prints by itself is output of the run too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, Callable, Protocol  # noqa: UP035

from backendai.agent.guest import kit, processes
from backendai.agent.guest.items import LARGEST_MESSAGE, encoded

_START_SECONDS = 60.0
Say = Callable[["dict[str, Any]"], None]


class InterpreterFailed(Exception):
    """It does not start, or it has ended; the text says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Interpreter(Protocol):
    """What a context needs. ``hear`` of the maker gets raw text; ``next`` the messages of the program."""

    about: dict[str, Any]

    async def next(self) -> dict[str, Any] | None:
        """Return the next message, or None when it has ended."""

    def tell(self, order: dict[str, Any]) -> None:
        """Send an order."""

    def interrupt(self) -> None:
        """Ask it to stop what it does."""

    async def kill(self) -> None:
        """End it, and all that it started in its group."""

    async def why_it_ended(self) -> InterpreterFailed:
        """Return the reason once it has ended."""


class ProgramInterpreter:
    """An interpreter that is a process of the kernel."""

    def __init__(self, program: processes.Program, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._program, self._reader, self._writer = program, reader, writer
        self._kills_before = processes.memory_kills()
        self.about: dict[str, Any] = {}

    async def next(self) -> dict[str, Any] | None:
        """Return the next message; a message that cannot be read ends the interpreter."""
        try:
            line = await self._reader.readline()
            self._program.drain()  # what it wrote before it said this
            return dict(json.loads(line)) if line.endswith(b"\n") else None
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def tell(self, order: dict[str, Any]) -> None:
        """Send an order; one that has ended hears nothing, and ``next`` says so."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(encoded(order))

    def interrupt(self) -> None:
        """Some runners forward it to the language's process, the others are the process."""
        if self.about.get("interrupts_by") == "message":
            self.tell({"do": "interrupt"})
        else:
            self._program.signal(signal.SIGINT)

    async def kill(self) -> None:
        """Ask it to end what it started (kernels of Jupyter have groups of their own), then kill."""
        waiting = asyncio.ensure_future(self._program.wait())
        if self.about.get("interrupts_by") == "message":
            self.tell({"do": "end"})
            await asyncio.wait([waiting], timeout=5.0)
        self._program.kill()
        await waiting
        self._kill_group()
        self._writer.close()

    def _kill_group(self) -> None:
        """Kill what the language's process has left, where that has a group of its own."""
        group = self.about.get("group")
        if isinstance(group, int) and group > 1 and group != os.getpgrp():
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)

    async def why_it_ended(self) -> InterpreterFailed:
        """Return the reason: memory, a signal, or its own end."""
        waiting = asyncio.ensure_future(self._program.wait())
        await asyncio.wait([waiting], timeout=5.0)
        self._program.kill()
        code = await waiting
        self._kill_group()
        self._writer.close()
        if code == 128 + signal.SIGKILL and processes.memory_kills() > self._kills_before:
            limit = processes.memory_limit() // 2**20
            return InterpreterFailed(
                "out-of-memory", f"The interpreter was killed: the session used up its {limit} MiB of memory."
            )
        return InterpreterFailed("interpreter-ended", f"The interpreter ended by itself with exit code {code}.")


async def start(name: str, language: str, hear: processes.Hear, *, ipc_only: bool) -> ProgramInterpreter:
    """Start an interpreter and wait until it can run code. Raises InterpreterFailed."""
    if kit.is_ours():
        raise InterpreterFailed(
            "interpreter-failed", "This image has no Python 3.8 or newer, so only commands run in it."
        )
    ours, theirs = socket.socketpair()
    order = {"context": name, "language": language, "ipc_only": ipc_only}
    python = kit.python_of_people(by_path=ipc_only)
    argv = [python, sys.argv[0], "run-interpreter", str(theirs.fileno()), json.dumps(order)]
    try:
        program = await processes.start(argv, hear, pass_fds=(theirs.fileno(),))
    except OSError as error:
        ours.close()
        raise InterpreterFailed("interpreter-failed", f"The interpreter cannot be started: {error}") from error
    finally:
        theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours, limit=LARGEST_MESSAGE)
    interpreter = ProgramInterpreter(program, reader, writer)
    waiting = asyncio.ensure_future(interpreter.next())
    await asyncio.wait([waiting], timeout=_START_SECONDS)
    message = waiting.result() if waiting.done() else None
    waiting.cancel()
    if message is None or "ready" not in message:
        program.kill()
        await program.wait()
        text = str((message or {}).get("failed", f"it said nothing for {_START_SECONDS:.0f} seconds, or ended"))
        raise InterpreterFailed("interpreter-failed", f"The interpreter does not start: {text}")
    interpreter.about = dict(message["ready"])
    return interpreter
