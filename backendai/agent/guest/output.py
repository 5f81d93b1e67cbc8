"""What a run prints, on its way into the journal: short pieces of text are joined, long ones cut."""

from __future__ import annotations

import asyncio
import codecs
from typing import Any, Callable  # noqa: UP035

from backendai.agent.guest.journal import RunLog

LARGEST_TEXT = 64 * 1024
LARGEST_MEDIA = 8 * 2**20
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
        self._write(_bounded(item))
        self._changed()

    def text(self, kind: str, text: str) -> None:
        """Take a piece of text of this kind."""
        if kind != self._kind:
            self.flush()
        self._kind = kind
        self._pieces.append(text)
        self._length += len(text)
        if self._length >= LARGEST_TEXT:
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
        for start in range(0, len(text), LARGEST_TEXT):
            self._write({"type": self._kind, "text": text[start : start + LARGEST_TEXT]})
        self._changed()

    def _write(self, item: dict[str, Any]) -> None:
        self.log.append({**item, "late": True} if self.is_late else item)


class Decoder:
    """Bytes of one stream to text; a letter that came in halves is put together."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes) -> str:
        """Return the text that is whole by now."""
        return self._decoder.decode(data)


def _bounded(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item, or an error item in place of something that is too large to be kept."""
    for name in ("data", "html", "text", "traceback", "value"):
        value = item.get(name, "")
        if isinstance(value, str) and len(value) > LARGEST_MEDIA:
            size = f"{len(value) // 2**20} MiB"
            text = f"Output of {size} ({item.get('mime') or item.get('type')}) was left out: 8 MiB are kept at most."
            return {"type": "log", "text": text}
    return item
