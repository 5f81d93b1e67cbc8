"""Items of output, within their limits: longer ones are cut or left out, and the output says so.

Limits count bytes of JSON, because journal, answers and interpreters pass items on as lines of it.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping  # noqa: UP035 - images may bring a Python of 2019

LARGEST_TEXT = 16 * 1024  # characters of one piece of text: at most 96 KiB of JSON
LARGEST_SHOWN = 2**20  # of a result or an error that is text
LARGEST_RICH = 8 * 2**20  # of a picture or a page
LARGEST_MESSAGE = 16 * 2**20  # from an interpreter: more than the largest item
Item = Dict[str, Any]  # noqa: UP006


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return a line of JSON in UTF-8; halves of letters, which UTF-8 does not have, become question marks."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def bounded(item: Mapping[str, Any]) -> list[Item]:
    """Return the item as one or more within the limits; what is no item is left out."""
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
    """Return the item that stands where this many bytes are not kept."""
    return {"type": "gap", "bytes": size, "reason": "too-large"}


def _error(item: Mapping[str, Any]) -> list[Item]:
    traceback, left_out = _cut(_text(item, "traceback"), keeps_end=True)
    about = {name: _text(item, name)[:LARGEST_TEXT] for name in ("name", "value")}
    error: Item = {"type": "error", **about, "traceback": traceback}
    return ([gap(left_out)] if left_out else []) + [error]


def _shown(item: Mapping[str, Any], kind: str) -> list[Item]:
    """Text is cut; half a picture or half a page would be none."""
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
    """Return the text cut to ``LARGEST_SHOWN`` bytes, and how many are left out."""
    data = text.encode(errors="replace")
    if len(data) <= LARGEST_SHOWN:
        return text, 0
    kept = data[-LARGEST_SHOWN:] if keeps_end else data[:LARGEST_SHOWN]
    return kept.decode(errors="ignore"), len(data) - LARGEST_SHOWN


def _size(text: str) -> int:
    """Return the bytes of a text in JSON; of a short one an upper bound."""
    return 6 * len(text) if 6 * len(text) <= LARGEST_RICH else len(encoded({"": text}))


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name, "")
    return value if isinstance(value, str) else ""
