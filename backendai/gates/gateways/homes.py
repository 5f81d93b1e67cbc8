"""Reads and changes the home folder of a running session through its guest agent, which runs in the session."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from backendai.base.core.errors import Conflict, UserError
from backendai.gates.gateways.asking import NodeUnreachable
from backendai.gates.gateways.guests import GuestTarget, answer_of, ask

CHANGE_SECONDS = 60.0  # a directory with very many files takes long to delete
_LARGEST_CHUNK = 2**20


async def ask_home(target: GuestTarget, op: str, /, *, seconds: float = CHANGE_SECONDS, **order: Any) -> dict[str, Any]:
    """Send an operation to the guest agent, and return its answer:

    ``list``, ``stat``, ``mkdir``, ``rename``, ``remove`` or ``find``. Raises the guest's refusal as UserError, or
    NodeUnreachable.
    """
    try:
        return await ask(target, {"op": op, **order}, seconds=seconds)
    except UserError as error:
        raise _if_old(error) from error


@contextlib.asynccontextmanager
async def zip_of(target: GuestTarget, paths: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the bytes of a ZIP archive of files and directories of the home folder.

    Raises the errors of ``ask_home``.
    """
    try:
        async with answer_of(target, {"op": "zip", "paths": list(paths)}) as (_about, content):
            yield _unframed(content)
    except UserError as error:
        raise _if_old(error) from error


async def _unframed(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes of chunks.

    Each has 4 bytes of length first; a length of 0 ends the stream. Raises NodeUnreachable if that end is missing.
    """
    held = bytearray()
    async for piece in content:
        held += piece
        at = 0  # cut off once for a piece: a guest may send thousands of tiny chunks in one
        while len(held) >= at + 4:
            length = int.from_bytes(held[at : at + 4], "big")
            if length == 0:
                return
            if length > _LARGEST_CHUNK:
                raise NodeUnreachable("the archive of a home folder cannot be read")
            if len(held) < at + 4 + length:
                break
            yield bytes(held[at + 4 : at + 4 + length])
            at += 4 + length
        del held[:at]
    raise NodeUnreachable("the archive of a home folder broke off")


def _if_old(error: UserError) -> UserError:
    """Return the error; for a guest of an older version one that says what to do."""
    if error.code != "bad-request":
        return error
    return Conflict(
        "The guest agent of this session is of an older version. It ends when nothing runs for ten minutes: then try "
        "again.",
        code="guest-too-old",
    )
