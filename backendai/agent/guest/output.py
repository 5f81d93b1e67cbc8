"""What a run prints, on its way into the journal: short pieces of text are joined, long ones cut."""

from __future__ import annotations

import asyncio
import codecs
from typing import Any, Callable  # noqa: UP035

from backendai.agent.guest.items import bounded
from backendai.agent.guest.journal import RunLog

_JOINED_TEXT = 64 * 1024
_JOIN_SECONDS = 0.01
_TEXTS = ("stdout", "stderr")


class Output:
    """Writes the items of one run. ``changed`` is called after each write, for readers that wait."""

    def __init__(self, log: RunLog, changed: Callable[[], None]) -> None:
        self.log, self._changed = log, changed
        self._kind, self._pieces, self._length = "", [], 0  # type: str, list[str], int
        self._timer: asyncio.TimerHandle | None = None
        self.is_late = False

    def add(self, item: dict[str, Any]) -> None:
        """Take one item; of text the next piece of the same kind within some milliseconds joins it."""
        if item.get("type") in _TEXTS:
            self.text(item["type"], str(item.get("text", "")))
            return
        self.flush()
        self._write(item)
        self._changed()

    def text(self, kind: str, text: str) -> None:
        """Take a piece of text of this kind."""
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
        """Write what waits."""
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
    """Bytes of one stream to text; a letter that came in halves is put together."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes) -> str:
        """Return the text that is whole by now."""
        return self._decoder.decode(data)
