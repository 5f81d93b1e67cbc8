"""Reads and writes translation catalogues:

``.po`` for people, ``.mo`` for Django. It needs no tool of the system, so that a fresh clone has every language, and a
test can compare both files.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

_WIDTH = 110
_CONTEXT_ENDS = "\x04"
_MAGIC = 0x950412DE


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The key of a text: its English words, and a context if the words have two meanings."""

    text: str
    context: str = ""


@dataclass(slots=True)
class Entry:
    """A text with its translations: one for each plural form, or one for a text without plural."""

    key: Key
    plural: str = ""
    translations: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_translated(self) -> bool:
        """Return whether all translations exist and none is marked as doubtful."""
        return bool(self.translations) and all(self.translations) and "fuzzy" not in self.flags


@dataclass(slots=True)
class Catalogue:
    """The catalogue of one language: comments at its top, the header for tools, and the entries."""

    remarks: str
    header: str
    entries: dict[Key, Entry]


def read_po(path: Path) -> Catalogue:
    """Return the catalogue in this file."""
    remarks, header, entries = "", "", {}
    for place, block in enumerate(_blocks(path.read_text())):
        entry = _parse(block)
        if entry.key == Key(""):
            header = "".join(entry.translations)
            remarks = "\n".join(line for line in block if line.startswith("#")) if place == 0 else remarks
        else:
            entries[entry.key] = entry
    return Catalogue(remarks, header, entries)


def po_text(catalogue: Catalogue) -> str:
    """Return the catalogue as the text of a file, in a stable order."""
    blocks = [[*catalogue.remarks.splitlines(), 'msgid ""', *_quoted("msgstr", catalogue.header)]]
    blocks += [_lines_of(catalogue.entries[key]) for key in sorted(catalogue.entries)]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def mo_bytes(catalogue: Catalogue) -> bytes:
    """Return the catalogue as a binary file for Django, without untranslated texts."""
    texts = {"": catalogue.header}
    for entry in catalogue.entries.values():
        if entry.is_translated:
            key = f"{entry.key.context}{_CONTEXT_ENDS}{entry.key.text}" if entry.key.context else entry.key.text
            texts[f"{key}\0{entry.plural}" if entry.plural else key] = "\0".join(entry.translations)
    return _mo(sorted((key.encode(), text.encode()) for key, text in texts.items()))


def renewed(old: Catalogue, found: Mapping[Key, Entry]) -> Catalogue:
    """Return the catalogue with exactly the found texts, keeping translations of unchanged ones."""
    entries = {}
    for key, entry in found.items():
        known = old.entries.get(key)
        same = known is not None and known.plural == entry.plural
        entries[key] = Entry(
            key,
            entry.plural,
            known.translations if known and same else (),
            entry.files,
            entry.flags | ((known.flags & {"fuzzy"}) if known and same else frozenset()),
        )
    return Catalogue(old.remarks, old.header, entries)


def _blocks(text: str) -> Iterator[list[str]]:
    lines = [line for line in text.split("\n") if not line.startswith("#~")]
    for blank, block in groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            yield list(block)


def _parse(block: Iterable[str]) -> Entry:
    parts: dict[str, str] = {}
    files: list[str] = []
    flags: list[str] = []
    name = ""
    for line in block:
        if line.startswith("#:"):
            files += line[2:].split()
        elif line.startswith("#,"):
            flags += [flag.strip() for flag in line[2:].split(",")]
        elif not line.startswith("#"):
            if not line.startswith('"'):
                name, line = line.split(" ", 1)
            parts[name] = parts.get(name, "") + ast.literal_eval(line)
    translations = tuple(parts[name] for name in sorted(parts) if name.startswith("msgstr"))
    key = Key(parts.get("msgid", ""), parts.get("msgctxt", ""))
    translations = translations if any(translations) else ()
    return Entry(key, parts.get("msgid_plural", ""), translations, tuple(files), frozenset(flags))


def _lines_of(entry: Entry) -> list[str]:
    lines = [f"#: {name}" for name in entry.files]
    lines += [f"#, {', '.join(sorted(entry.flags))}"] if entry.flags else []
    lines += _quoted("msgctxt", entry.key.context) if entry.key.context else []
    lines += _quoted("msgid", entry.key.text)
    if not entry.plural:
        return lines + _quoted("msgstr", "".join(entry.translations))
    lines += _quoted("msgid_plural", entry.plural)
    for number, text in enumerate(entry.translations or ("",)):
        lines += _quoted(f"msgstr[{number}]", text)
    return lines


def _quoted(name: str, text: str) -> list[str]:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n\n")
    )
    pieces = [piece for line in escaped.split("\n") for piece in _wrapped(line)] if escaped else [""]
    if len(pieces) == 1:
        return [f'{name} "{pieces[0]}"']
    return [f'{name} ""', *(f'"{piece}"' for piece in pieces)]


def _wrapped(line: str) -> Iterator[str]:
    """Yield the line in pieces, broken after spaces."""
    while len(line) > _WIDTH:
        at = line.rfind(" ", 0, _WIDTH) + 1 or line.find(" ") + 1 or len(line)
        yield line[:at]
        line = line[at:]
    if line:
        yield line


def _mo(texts: list[tuple[bytes, bytes]]) -> bytes:
    start = 7 * 4 + 16 * len(texts)
    tables: list[list[int]] = [[], []]
    blob = b""
    for side in (0, 1):
        for pair in texts:
            tables[side] += [len(pair[side]), start + len(blob)]
            blob += pair[side] + b"\0"
    head = struct.pack("<7I", _MAGIC, 0, len(texts), 28, 28 + 8 * len(texts), 0, start)
    return head + struct.pack(f"<{4 * len(texts)}I", *tables[0], *tables[1]) + blob
