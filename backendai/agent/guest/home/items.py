"""Items of output and their limits. Items above a limit are cut or replaced by a note.

Limits count bytes of JSON, as journal, answers and interpreters pass items as lines of JSON.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping  # noqa: UP035 - images may have Python 3.8

LARGEST_TEXT = 16 * 1024  # characters of one piece of text: at most 96 KiB of JSON
LARGEST_SHOWN = 2**20  # bytes of a result or error as text
LARGEST_RICH = 8 * 2**20  # bytes of a picture or a page
LARGEST_MESSAGE = 16 * 2**20  # bytes of an interpreter's message: more than the largest item
Item = Dict[str, Any]  # noqa: UP006


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line of JSON in UTF-8; unpaired surrogates become question marks."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def bounded(item: Mapping[str, Any]) -> list[Item]:
    """Return the item as one or more items within the limits; an empty list for an invalid item."""
    kind = item.get("type")
    if kind in ("stdout", "stderr", "log"):
        text = _text(item, "text")
        return [{"type": kind, "text": text[at : at + LARGEST_TEXT]} for at in range(0, len(text), LARGEST_TEXT)]
    if kind == "error":
        return _error(item)
    if kind in ("media", "html"):
        return _shown(item, kind)
    if kind == "clear":
        return [{"type": "clear", "wait": bool(item.get("wait"))}]
    if kind == "gap":
        return [gap(int(item.get("bytes") or 0))]
    return []


def gap(size: int) -> Item:
    """Return an item that marks ``size`` missing bytes."""
    return {"type": "gap", "bytes": size, "reason": "too-large"}


def _error(item: Mapping[str, Any]) -> list[Item]:
    traceback, left_out = _cut(_text(item, "traceback"), keeps_end=True)
    about = {name: _text(item, name)[:LARGEST_TEXT] for name in ("name", "value")}
    error: Item = {"type": "error", **about, "traceback": traceback}
    return ([gap(left_out)] if left_out else []) + [error]


def _shown(item: Mapping[str, Any], kind: str) -> list[Item]:
    """Return a result as items. Text is cut; a picture or page that is too large is replaced by a note."""
    name = "html" if kind == "html" else "data"
    mime, content, left_out = _text(item, "mime")[:128], _text(item, name), 0
    if mime == "text/plain":
        content, left_out = _cut(content)
    elif (size := _size(content)) > LARGEST_RICH:
        text = f"Output of {size // 2**20} MiB ({mime or kind}) was left out: 8 MiB are kept at most."
        return [{"type": "log", "text": text}]
    shown: Item = {"type": kind, name: content}
    if kind == "media":
        shown["mime"] = mime
    for other in ("text", "display"):
        if text := _text(item, other):
            shown[other] = text[:LARGEST_TEXT]
    if item.get("updates") is True:
        shown["updates"] = True
    return [shown] + ([gap(left_out)] if left_out else [])


def _cut(text: str, *, keeps_end: bool = False) -> tuple[str, int]:
    """Return the text cut to ``LARGEST_SHOWN`` bytes, and the number of removed bytes."""
    data = text.encode(errors="replace")
    if len(data) <= LARGEST_SHOWN:
        return text, 0
    kept = data[-LARGEST_SHOWN:] if keeps_end else data[:LARGEST_SHOWN]
    return kept.decode(errors="ignore"), len(data) - LARGEST_SHOWN


def _size(text: str) -> int:
    """Return the text's size in JSON, in bytes; for a short text an upper bound."""
    return 6 * len(text) if 6 * len(text) <= LARGEST_RICH else len(encoded({"": text}))


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name, "")
    return value if isinstance(value, str) else ""
