"""Guests of simulated kernels: with the real journal, queue and states, and a simulated interpreter.

It knows literals and sums of them, ``print(…)`` of those, ``echo``, ``sleep``, ``exit`` and ``input()``.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.guest_host import InProcessGuests
from backendai.agent.guest.code.interpreter import Interpreter, InterpreterFailed
from backendai.agent.guest.code.journal import Journal
from backendai.agent.guest.guest import LARGEST_QUESTION, Guest

_PRINT = re.compile(r"print\((.*)\)\s*\Z")
_INPUT = re.compile(r"input\((.*)\)\s*\Z")
_MOST = 1000


class SimulatedGuests(InProcessGuests):
    """``check`` raises KernelGone for a kernel that does not run. The journals are temporary."""

    def __init__(self, check: Callable[[UUID], None]) -> None:
        self._check = check
        self._guests: dict[UUID, tuple[Guest, Path]] = {}

    async def open(self, kernel_id: UUID) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the kernel's guest; creates the guest at the first question."""
        self._check(kernel_id)
        if kernel_id not in self._guests:
            if len(self._guests) >= _MOST:
                self._drop(next(iter(self._guests)))
            folder = Path(tempfile.mkdtemp(prefix="simulated-runs-"))
            self._guests[kernel_id] = (Guest(Journal(folder), _start, _languages, has_files=False), folder)
        ours, theirs = socket.socketpair()
        answering = asyncio.ensure_future(_answer(self._guests[kernel_id][0], theirs))
        answering.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.open_connection(sock=ours, limit=LARGEST_QUESTION)

    def working(self) -> set[UUID]:
        """Return the kernels in which code runs."""
        return {kernel_id for kernel_id, (guest, _) in list(self._guests.items()) if guest.is_working}

    def remove(self, kernel_id: UUID) -> None:
        """Delete the runs of a kernel."""
        self._drop(kernel_id)

    def close(self) -> None:
        """Delete all runs."""
        for kernel_id in list(self._guests):
            self._drop(kernel_id)

    def _drop(self, kernel_id: UUID) -> None:
        if found := self._guests.pop(kernel_id, None):
            shutil.rmtree(found[1], ignore_errors=True)


class SimulatedInterpreter:
    """Evaluates the known expressions, line by line."""

    def __init__(self) -> None:
        self.about = {"language": "simulated", "title": "Simulated", "kind": "simulated"}
        self._messages: asyncio.Queue[dict[str, object] | None] = asyncio.Queue()
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def next(self) -> dict[str, object] | None:
        """Return the next message."""
        return await self._messages.get()

    def tell(self, order: dict[str, object]) -> None:
        """Handle an order."""
        if order["do"] == "run":
            self._task = asyncio.ensure_future(self._run(str(order["code"]), order["run_id"]))
        elif order["do"] == "input":
            self._answers.put_nowait(str(order["text"]))
        elif order["do"] == "complete":
            found = {"matches": ["echo", "exit", "input", "print", "sleep"], "cursor_start": 0, "cursor_end": 0}
            self._messages.put_nowait({"completion": found, "number": order["number"]})

    def interrupt(self) -> None:
        """Stop the current code."""
        if self._task is not None:
            self._task.cancel()

    async def kill(self) -> None:
        """End the interpreter."""
        self.interrupt()
        self._messages.put_nowait(None)

    async def why_it_ended(self) -> InterpreterFailed:
        """Return that it was ended, as it does not end by itself."""
        return InterpreterFailed("interpreter-ended", "The interpreter was ended.")

    async def _run(self, code: str, run_id: object) -> None:
        exit_code = 0
        try:
            for line in filter(None, map(str.strip, code.splitlines())):
                if line.startswith("exit"):
                    exit_code = int(_number_in(line))
                    break
                await self._line(line)
        except asyncio.CancelledError:
            exit_code = 130
            self._error("KeyboardInterrupt", "")
        except (ValueError, SyntaxError, TypeError) as error:
            exit_code = 1
            self._error(type(error).__name__, str(error))
        self._messages.put_nowait({"done": run_id, "exit_code": exit_code})

    async def _line(self, line: str) -> None:
        if line.startswith("sleep"):
            await asyncio.sleep(_number_in(line))
        elif line.startswith("echo "):
            self._item("stdout", text=line[5:] + "\n")
        elif asked := _INPUT.match(line):
            prompt = ast.literal_eval(asked[1]) if asked[1] else ""
            self._messages.put_nowait({"ask": str(prompt)})
            self._item("media", mime="text/plain", data=repr(await self._answers.get()))
        elif printed := _PRINT.match(line):
            self._item("stdout", text=f"{_value(printed[1])}\n")
        else:
            self._item("media", mime="text/plain", data=repr(_value(line)))

    def _item(self, kind: str, **more: str) -> None:
        self._messages.put_nowait({"item": {"type": kind, **more}})

    def _error(self, name: str, value: str) -> None:
        self._item("error", name=name, value=value, traceback=f"{name}: {value}\n")


def _number_in(line: str) -> float:
    found = re.search(r"[0-9.]+", line)
    return float(found[0]) if found else 0.0


def _value(text: str) -> object:
    tree = ast.parse(text.strip(), mode="eval").body
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, (ast.Add, ast.Mult)):
        left, right = ast.literal_eval(tree.left), ast.literal_eval(tree.right)
        if not all(isinstance(side, int | float) for side in (left, right)):
            raise TypeError("A simulated session adds and multiplies numbers only.")
        return left + right if isinstance(tree.op, ast.Add) else left * right
    return ast.literal_eval(tree)


async def _start(name: str, language: str, hear: Callable[[str, str], None]) -> Interpreter:
    return SimulatedInterpreter()


async def _languages() -> list[dict[str, str]]:
    return [{"name": "simulated", "title": "Simulated"}]


async def _answer(guest: Guest, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=LARGEST_QUESTION)
    with contextlib.suppress(OSError):
        await guest.answer(reader, writer)
