"""Paths in a folder as texts, which can also represent names that are not UTF-8 (``base/paths/path_texts.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.paths.path_texts import RAW, bytes_of, decode_raw, shown_text, text_of

_LONGEST_PATH = 4096


def path_in(text: str) -> str:
    """Return a normalized path relative to the folder; the file server validates it again."""
    try:
        raw = bytes_of(text[:_LONGEST_PATH])
    except UserError:
        return ""
    return text_of(_joined(raw))


def places_of(path: str) -> list[tuple[str, str]]:
    """Return name and path of every directory on the way to this path."""
    parts = bytes_of(path).split(b"/") if path else []
    return [(shown_text(name), text_of(b"/".join(parts[: place + 1]))) for place, name in enumerate(parts)]


def name_of(path: str) -> str:
    """Return the last name of a path as readable text."""
    return shown_text(bytes_of(path).rpartition(b"/")[2])


def directory_of(path: str) -> str:
    """Return the path of the parent directory; empty for the folder itself."""
    return text_of(bytes_of(path).rpartition(b"/")[0])


def inside(directory: str, name: str) -> str:
    """Return the path of this name in the directory."""
    return text_of(_joined(bytes_of(directory) + b"/" + name.encode(errors="surrogatepass")))


def moved_to(directory: str, path: str) -> str:
    """Return the path that the entry would have in another directory."""
    return text_of(_joined(bytes_of(directory) + b"/" + bytes_of(path).rpartition(b"/")[2]))


def answered_path(answer: Mapping[str, Any]) -> str:
    """Return the path in an answer of the file server."""
    if raw := answer.get("raw_path"):
        return text_of(decode_raw(str(raw)))
    return str(answer["path"])


def entry_in(directory: str, entry: Mapping[str, Any]) -> str:
    """Return the path of an entry in a directory listing."""
    if raw := entry.get("raw"):
        return text_of(_joined(bytes_of(directory) + b"/" + decode_raw(str(raw))))
    return inside(directory, str(entry["name"]))


def is_raw(path: str) -> bool:
    """Return whether the path contains names that are not UTF-8."""
    return path.startswith(RAW)


def _joined(raw: bytes) -> bytes:
    parts = raw.replace(b"\0", b"").split(b"/")
    return b"/".join(part for part in parts if part not in (b"", b".", b".."))
