"""Answers questions about files in the home folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from backendai.agent.guest.home import contents as files
from backendai.agent.guest.home import directories
from backendai.agent.guest.home.zipping import send_zip

_DIRECTORIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "list": directories.entries,
    "stat": directories.entry,
    "mkdir": directories.make_directory,
    "rename": directories.move,
    "remove": directories.remove,
    "delete": lambda order: directories.remove({"paths": [str(order["path"])]}),
    "find": directories.search,
}
NAMES = frozenset({"put", "get", "zip", *_DIRECTORIES})


async def serve(order: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one question. Raises FileRefused."""
    name = str(order["op"])
    if name == "put":
        _send(writer, await files.put(order, reader))
    elif name == "zip":
        await send_zip(order, writer)
    elif name == "get":
        path = str(order["path"])
        found = files.look(path)
        _send(writer, found)
        if found["type"] == "file":
            await files.get(path, int(found["size"]), writer)
    else:
        _send(writer, await _look(_DIRECTORIES[name], order))


async def _look(work: Callable[[dict[str, Any]], dict[str, Any]], order: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a directory operation. Runs it in a thread, as it may take long."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work, order)
    except OSError as error:
        raise files.refused(error) from error


def _send(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    with contextlib.suppress(RuntimeError):  # the agent has disconnected
        writer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
