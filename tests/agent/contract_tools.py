"""Waiting and asking, shared by the tests of the backend contract."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from backendai.agent.backends.base import Backend, Ended, Terminal
from backendai.agent.gateway.ports import Ports
from backendai.base.wire.messages import KernelSpec
from backendai.base.wire.splice import Side, splice
from tests.patience import patient, until

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
NewSpec = Callable[..., KernelSpec]
PATIENCE = 30.0


def needs(ability: type[Any]) -> Callable[[F], F]:
    """Ask this question of backends with the ability only; the contract's fixture looks."""

    def mark(question: F) -> F:
        question.__dict__["needs"] = ability
        return question

    return mark


def ended_of(backend: Backend, kernel_id: UUID) -> Ended:
    """Return how the kernel ended, waiting for the end."""
    ended = until(lambda: backend.ended(kernel_id))
    assert ended is not None
    return ended


async def read_until(terminal: Terminal, wanted: bytes, *, patience: float = PATIENCE) -> bytes:
    """Return the terminal's output up to and including ``wanted``."""
    seen = b""
    async with asyncio.timeout(patient(patience)):
        while wanted not in seen:
            piece = await terminal.read()
            assert piece, f"the shell ended after {seen!r}"
            seen += piece
    return seen


async def ask(terminal: Terminal, question: bytes, answer: bytes) -> bytes:
    """Type the question until the answer comes: a shell may drop what is typed before it is ready, or resize late.

    Ctrl-C before each fifth try ends a line of which only a part was dropped: behind an open quote, nothing runs.
    """

    async def keep_typing() -> None:
        for number in itertools.count(1):
            await terminal.write(question)
            await asyncio.sleep(1)
            if number % 5 == 0:
                await terminal.write(b"\x03")
                await asyncio.sleep(1)  # a shell drops what is typed right behind it

    typing = asyncio.create_task(keep_typing())
    try:
        return await read_until(terminal, answer)
    finally:
        typing.cancel()


def answer_of(ports: Ports, kernel_id: UUID) -> bytes:
    """Return what a page of the kernel answers."""

    async def ask() -> bytes:
        near, far = socket.socketpair()
        near.setblocking(False)
        local = (await asyncio.get_running_loop().create_connection(Side, sock=far))[1]
        joined = asyncio.create_task(splice(local, await ports.dial(kernel_id, "notes", 8000)))
        loop, seen = asyncio.get_running_loop(), b""
        await loop.sock_sendall(near, b"GET / HTTP/1.0\r\n\r\n")
        while piece := await loop.sock_recv(near, 4096):
            seen += piece
        near.close()
        joined.cancel()
        return seen

    return asyncio.run(asyncio.wait_for(ask(), patient(20)))
