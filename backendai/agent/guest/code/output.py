"""A run's output on its way to the journal: short texts are joined, long ones split."""

from __future__ import annotations

import asyncio
import codecs
from typing import Any, Callable  # noqa: UP035

from backendai.agent.guest.code.journal import RunLog
from backendai.agent.guest.home.items import bounded

_JOINED_TEXT = 64 * 1024
_JOIN_SECONDS = 0.01
_TEXTS = ("stdout", "stderr")


class Output:
    """Writes the items of one run. ``changed`` is called after each write, to wake readers."""

    def __init__(self, log: RunLog, changed: Callable[[], None]) -> None:
        self.log, self._changed = log, changed
        self._kind, self._pieces, self._length = "", [], 0  # type: str, list[str], int
        self._timer: asyncio.TimerHandle | None = None
        self.is_late = False

    def add(self, item: dict[str, Any]) -> None:
        """Add an item. Text is joined with text of the same kind that follows within 10 ms."""
        if item.get("type") in _TEXTS:
            self.text(item["type"], str(item.get("text", "")))
            return
        self.flush()
        self._write(item)
        self._changed()

    def text(self, kind: str, text: str) -> None:
        """Add a piece of text of this kind."""
        if kind != self._kind:
            self.flush()
        self._kind = kind
        self._pieces.append(text)
        self._length += len(text)
        if self._length >= _JOINED_TEXT:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_JOIN_SECONDS, self.flush)

    def flush(self) -> None:
        """Write buffered text."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces, self._length = [], 0
        self._write({"type": self._kind, "text": text})
        self._changed()

    def _write(self, item: dict[str, Any]) -> None:
        for one in bounded(item):
            self.log.append({**one, "late": True} if self.is_late else one)


class Decoder:
    """Decodes a byte stream as UTF-8, with characters that are split between pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes) -> str:
        """Return the complete characters so far."""
        return self._decoder.decode(data)
