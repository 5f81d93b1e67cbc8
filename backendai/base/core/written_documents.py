"""Reads YAML and JSON that people wrote, within limits of size and depth. Records the position of every value.

Scalars follow YAML 1.2: ``no``, ``12:30`` and also ``0755`` are text. Anchors, tags and repeated keys are rejected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from yaml import events
from yaml.reader import ReaderError

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

LARGEST = 64 * 1024
DEEPEST = 20
MOST_VALUES = 5000
CODE = "invalid-document"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE, _FALSE = frozenset({"true", "True", "TRUE"}), frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 18
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_INDEX = re.compile(r"\.\d+(?=\.|\Z)")


class Place(NamedTuple):
    """A position in a text: line and column, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class WrittenDocument:
    """A parsed document, with the position of each value by its path (``roles.worker.image``, ``mounts.0.folder``)."""

    value: dict[str, Any]
    places: Mapping[str, Place] = field(default_factory=dict)

    def placed(self, error: UserError) -> UserError:
        """Return the error with line and column of its value, or of the closest value around it. Unchanged if neither
        is in the text."""
        place = self._place_of(error.field or "")
        return error if place is None else _wrong(place, error.message, error.field, error.code)

    def _place_of(self, path: str) -> Place | None:
        while path:
            if path in self.places:
                return self.places[path]
            for known, place in self.places.items():
                if _INDEX.sub("", known) == path:
                    return place
            path = path.rpartition(".")[0]
        return None


def read_document(text: str, *, largest: int = LARGEST, most: int = MOST_VALUES) -> WrittenDocument:
    """Return the parsed text. Raises UserError with line and column if the text exceeds a limit (size, depth, number of
    values) or is not one mapping."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > largest:
        raise UserError(
            "The document has {size} bytes: use at most {largest}.", size=size, largest=largest, code="too-large"
        )
    if text.lstrip("\ufeff \t\r\n").startswith("{"):  # unlike YAML, JSON allows tabs and surrogate pairs
        text = _PAIR.sub(_letter, text.replace("\t", " "))
    reader = _Reader(text, most)
    try:
        value = reader.document()
    except yaml.YAMLError as error:
        raise _not_yaml(error, text) from None
    except UnicodeEncodeError as error:
        raise _wrong(_place_at(text, error.start), Message("half of a letter (U+D800 to U+DFFF)")) from None
    return WrittenDocument(value, reader.places)


def check_extent(value: object, most: int = MOST_VALUES) -> None:
    """Raise UserError if a JSON value has more than ``DEEPEST`` levels or more than ``most`` values."""
    for number, depth in enumerate(_depths(value, 1), 1):
        if depth > DEEPEST:
            raise UserError("The document has more than {deepest} levels.", deepest=DEEPEST, code="too-deep")
        if number > most:
            raise UserError("The document has more than {most} values.", most=most, code="too-large")


def written(document: Mapping[str, Any]) -> str:
    """Return the document as YAML, which ``read_document`` can read."""
    return str(yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


class _Dumper(yaml.SafeDumper):
    """Writes YAML in block style and quotes text that would be read as a number."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and not any(line != line.rstrip() for line in text.split("\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"(?:{_NUMBER.pattern})\Z", re.ASCII), list("-+.0123456789")
)


class _Reader:
    """Builds a document from the parser's events in one pass."""

    def __init__(self, text: str, most: int) -> None:
        self._text = text
        self._events: Iterator[events.Event] = iter(())
        self._most = self._left = most
        self.places: dict[str, Place] = {}

    def document(self) -> dict[str, Any]:
        self._events = yaml.parse(self._text, Loader=_LOADER)
        next(self._events)  # the beginning of the stream
        if not isinstance(next(self._events), events.DocumentStartEvent):
            raise UserError("The document is empty.", code=CODE)
        first = next(self._events)
        if not isinstance(first, events.MappingStartEvent):
            raise _wrong(_place(first), Message("write keys with their values"))
        value = self._value(first, "", 1)
        next(self._events)  # the end of the document
        if not isinstance(after := next(self._events), events.StreamEndEvent):
            raise _wrong(_place(after), Message("a second document begins here: write one"))
        return dict(value)

    def _value(self, event: events.Event, path: str, depth: int) -> Any:
        self._check(event, depth)
        if isinstance(event, events.ScalarEvent):
            return _scalar(event)
        return self._mapping(path, depth) if isinstance(event, events.MappingStartEvent) else self._list(path, depth)

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), events.MappingEndEvent):
            self._check(event, depth)
            if not isinstance(event, events.ScalarEvent):
                raise _wrong(_place(event), Message("a key is a text"))
            key = str(event.value)
            if key in found:
                raise _wrong(
                    _place(event), Message("key {key} is written twice", key=repr(key[:64])), _below(path, key)
                )
            where = _below(path, key)
            self.places[where] = _place(event)
            found[key] = self._value(next(self._events), where, depth + 1)
        return found

    def _list(self, path: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), events.SequenceEndEvent):
            where = _below(path, str(len(found)))
            self.places[where] = _place(event)
            found.append(self._value(event, where, depth + 1))
        return found

    def _check(self, event: events.Event, depth: int) -> None:
        self._left -= 1
        if isinstance(event, events.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _wrong(_place(event), Message("anchors and aliases (& and *) are not read: write the value itself"))
        if getattr(event, "tag", None) is not None:
            raise _wrong(_place(event), Message("tags (!) are not read: leave it out"))
        if depth > DEEPEST:
            raise _wrong(_place(event), Message("more than {deepest} levels", deepest=DEEPEST), code="too-deep")
        if self._left < 0:
            raise _wrong(_place(event), Message("more than {most} values", most=self._most), code="too-large")


def _scalar(event: events.ScalarEvent) -> Any:
    text = str(event.value)
    if "\0" in text:
        raise _wrong(_place(event), Message("a text has no character U+0000"))
    if not event.implicit[0]:  # in quotes, or a block
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        if len(text) > _LONGEST_NUMBER:
            raise _wrong(_place(event), Message("a number has at most {most} digits", most=_LONGEST_NUMBER))
        return int(text)
    if _NUMBER.fullmatch(text):
        if not math.isfinite(number := float(text)):
            raise _wrong(_place(event), Message("this number is too large"))
        return number
    return text


def _depths(value: object, depth: int) -> Iterator[int]:
    yield depth
    if depth > DEEPEST:
        return
    below = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in below:
        yield from _depths(each, depth + 1)


def _below(path: str, key: str) -> str:
    return f"{path}.{key[:64]}" if path else key[:64]


def _place(event: events.Event) -> Place:
    mark: Any = event.start_mark
    return Place(mark.line + 1, mark.column + 1)


def _place_at(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def _letter(found: re.Match[str]) -> str:
    high, low = int(found[2], 16), int(found[3], 16)
    return found[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _not_yaml(error: yaml.YAMLError, text: str) -> UserError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read")[:200]
    said = Message("this is neither YAML nor JSON: {problem}", problem=problem)
    if isinstance(error, ReaderError) and isinstance(error.position, int):  # in bytes; exact for ASCII
        return _wrong(_place_at(text, error.position), said)
    return _wrong(Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1), said)


def _wrong(place: Place, said: str, path: str | None = None, code: str = CODE) -> UserError:
    text = Message("Line {line}, column {column}: {said}", line=place.line, column=place.column, said=said)
    return UserError(text, field=path, code=code, line=place.line, column=place.column)
