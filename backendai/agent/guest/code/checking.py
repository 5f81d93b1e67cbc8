"""Checks of the guest's orders, and notifications of changes."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import uuid4

LARGEST_CODE = 2**20
_LONGEST_NAME = 64
_LONGEST_TIMEOUT = 7 * 86400.0
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


class Refused(Exception):
    """The guest refuses a question; ``code`` and message give the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ChangeSignal:
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake the waiting tasks."""
        self._event.set()
        self._event = asyncio.Event()

    async def next(self, seconds: float) -> None:
        """Wait for the next change, at most ``seconds``."""
        waiting = asyncio.ensure_future(self._event.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()


def checked(order: dict[str, Any]) -> dict[str, Any]:
    """Return the checked fields of an order to run code. Raises Refused, ValueError."""
    code, mode = str(order.get("code") or ""), str(order.get("mode") or "query")
    if mode not in ("query", "batch"):
        raise Refused("bad-mode", "The mode is not known: use query or batch.")
    if len(code.encode(errors="replace")) > LARGEST_CODE:
        raise Refused("code-too-large", "The code is too large: 1 MiB at most.")
    options = {str(key): str(value) for key, value in dict(order.get("options") or {}).items() if value}
    run_id = name_of(order.get("run_id") or uuid4().hex)
    if run_id.startswith("."):
        raise Refused("bad-name", "A run id does not begin with a dot.")
    timeout = min(max(float(order.get("timeout") or 0), 0.0), _LONGEST_TIMEOUT)
    context = name_of(order.get("context"))
    return {
        "run_id": run_id, "context": context, "language": language_of(order), "mode": mode, "code": code,
        "options": options, "timeout": timeout,
    }  # fmt: skip


def language_of(order: dict[str, Any]) -> str:
    """Return the name of the kernelspec in an order; empty: the default."""
    return str(order.get("language") or "")[:_LONGEST_NAME]


def name_of(value: Any) -> str:
    """Return the name of a run or a context. Raises Refused."""
    name = str(value or "main")
    if not _NAME.match(name):
        raise Refused("bad-name", "A name has 1 to 64 letters, digits, '-', '_' and '.'.")
    return name
