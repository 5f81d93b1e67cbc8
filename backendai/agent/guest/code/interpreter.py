"""One interpreter of a language: a program (see ``runners``) that runs code and reports the results.

Both sides exchange lines of JSON over a socket: ``run``, ``input``, ``interrupt`` and ``complete`` to the program,
``ready``, ``item``, ``ask``, ``done``, ``completion`` and ``failed`` from it. The program's standard output also
belongs to the run.
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
from backendai.agent.guest.home.items import LARGEST_MESSAGE, encoded
from backendai.base.process.slowness import allowed

_START_SECONDS = 60.0
Say = Callable[["dict[str, Any]"], None]


class InterpreterFailed(Exception):
    """The interpreter does not start, or has ended; the message gives the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Interpreter(Protocol):
    """An interpreter as contexts use it. ``hear`` of ``start`` receives raw output; ``next`` returns the program's
    messages."""

    about: dict[str, Any]

    async def next(self) -> dict[str, Any] | None:
        """Return the next message; None after the interpreter's end."""

    def tell(self, order: dict[str, Any]) -> None:
        """Send an order."""

    def interrupt(self) -> None:
        """Ask the interpreter to stop the current code."""

    async def kill(self) -> None:
        """Kill the interpreter and its process group."""

    async def why_it_ended(self) -> InterpreterFailed:
        """Wait for the interpreter's end and return the reason."""


class ProgramInterpreter:
    """An interpreter that is a process of the kernel."""

    def __init__(self, program: processes.Program, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._program, self._reader, self._writer = program, reader, writer
        self._kills_before = processes.memory_kills()
        self.about: dict[str, Any] = {}

    async def next(self) -> dict[str, Any] | None:
        """Return the next message. An unreadable message counts as the interpreter's end."""
        try:
            line = await self._reader.readline()
            self._program.drain()  # the output written before this message
            return dict(json.loads(line)) if line.endswith(b"\n") else None
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def tell(self, order: dict[str, Any]) -> None:
        """Send an order. Does nothing after the interpreter's end, which ``next`` reports."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(encoded(order))

    def interrupt(self) -> None:
        """Interrupt the code: by a message to runners that forward it, else by SIGINT."""
        if self.about.get("interrupts_by") == "message":
            self.tell({"do": "interrupt"})
        else:
            self._program.signal(signal.SIGINT)

    async def kill(self) -> None:
        """Ask the runner to end its children, as Jupyter kernels have process groups of their own; then kill it."""
        waiting = asyncio.ensure_future(self._program.wait())
        if self.about.get("interrupts_by") == "message":
            self.tell({"do": "end"})
            await asyncio.wait([waiting], timeout=5.0)
        self._program.kill()
        await waiting
        self._kill_group()
        self._writer.close()

    def _kill_group(self) -> None:
        """Kill the remaining processes of the language's own process group, if it has one."""
        group = self.about.get("group")
        if isinstance(group, int) and group > 1 and group != os.getpgrp():
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)

    async def why_it_ended(self) -> InterpreterFailed:
        """Return the reason: out of memory, or an exit code."""
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
    """Start an interpreter and wait until it is ready. Raises InterpreterFailed."""
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
    longest = allowed(_START_SECONDS)
    await asyncio.wait([waiting], timeout=longest)
    message = waiting.result() if waiting.done() else None
    waiting.cancel()
    if message is None or "ready" not in message:
        program.kill()
        await program.wait()
        text = str((message or {}).get("failed", f"it said nothing for {longest:.0f} seconds, or ended"))
        raise InterpreterFailed("interpreter-failed", f"The interpreter does not start: {text}")
    interpreter.about = dict(message["ready"])
    return interpreter
