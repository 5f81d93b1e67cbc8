"""Messages as data: an English template with named gaps, the values of the gaps, and a stable code.

A ``Message`` is a ``str`` with its English text, so logs, REST and older peers read plain text. Pages and mails render
the message in the reader's language (``texts.messages.in_words``), or in English if their catalogue lacks the template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

_GAP = re.compile(r"\{(\w+)\}")
_STORED = '{"text": '
_NO_VALUES: Mapping[str, Any] = MappingProxyType({})
_DEEPEST = 8  # levels of messages inside messages, as a peer may send them
_LIST = ", "
LONGEST = 500


class Message(str):
    """English text that keeps its template, values and code. Values are scalars, messages, or tuples of both.

    The first argument of a call must be a literal, as translators see it: ``Message("{n} of {all} agents", n=2,
    all=5)``. Gaps are words in braces; other braces are kept as text.
    """

    # Not named ``code``: REST framework would use this attribute of a string as the error's code.
    __slots__ = ("stable_code", "template", "values")

    stable_code: str
    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: str = "", /, code: str = "", **values: object) -> Message:
        """Return the message with its gaps filled in English."""
        return cls._made(template, code, {name: _value(value) for name, value in values.items()})

    @classmethod
    def _made(cls, template: str, code: str, values: Mapping[str, Any]) -> Message:
        message = str.__new__(cls, filled(template, values, _in_english) if values else template)
        write = object.__setattr__
        write(message, "template", str.__str__(template))
        write(message, "stable_code", code)
        write(message, "values", MappingProxyType(values) if values else _NO_VALUES)
        return message

    @classmethod
    def of(cls, data: object) -> Message:
        """Return the message from its JSON object (``data()``) or its text (``stored()``). Any other text becomes a
        message without values."""
        return data if isinstance(data, Message) else _read(data, _DEEPEST)

    @classmethod
    def joined(cls, parts: Iterable[str], separator: str = " ") -> Message:
        """Return the messages joined by ``separator``, without empty ones. Each is translated separately."""
        found = [part for part in parts if part]
        if len(found) == 1:
            return cls.of(found[0])
        values = {f"part{number}": _value(part) for number, part in enumerate(found, 1)}
        return cls._made(separator.join(f"{{{name}}}" for name in values), "", values)

    def data(self) -> dict[str, Any]:
        """Return the message as a JSON object; its ``text`` is the template."""
        return {
            "text": self.template,
            "values": _json(self.values),
            **({"code": self.stable_code} if self.stable_code else {}),
        }

    def stored(self) -> str:
        """Return the message for a text column. A message without values and code is stored as plain English."""
        return json.dumps(self.data(), ensure_ascii=False) if self.values or self.stable_code else self.template

    def __str__(self) -> Message:
        """Return the message itself. Forms of Django call ``str`` on each error before a page translates it."""
        return self

    def __setattr__(self, name: str, value: object) -> None:
        """Raise an error, as messages are immutable."""
        raise AttributeError(f"A message does not change: {name}")

    def __reduce__(self) -> tuple[Callable[[object], Message], tuple[dict[str, Any]]]:
        """Support copying and pickling by ``data()``."""
        return Message.of, (self.data(),)


class MessageTemplate(str):
    """The template of messages that are made later. A literal too: ``MessageTemplate("after {limit}")``."""

    __slots__ = ()

    def filled(self, values: Mapping[str, object]) -> Message:
        """Return the message with the values of its gaps, of any that are given. Raises KeyError for a missing one."""
        return Message._made(self, "", {name: _value(values[name]) for name in dict.fromkeys(_GAP.findall(self))})


def filled(template: str, values: Mapping[str, Any], shown: Callable[[Any], str]) -> str:
    """Return a template with each gap replaced by ``shown(value)``. A gap without a value is kept as text."""
    return _GAP.sub(lambda gap: shown(values[gap[1]]) if gap[1] in values else gap[0], template)


def gaps(template: str) -> set[str]:
    """Return the names of the gaps of a template."""
    return set(_GAP.findall(template))


def values_of(message: str) -> dict[str, Any]:
    """Return the values of a message as JSON, by the name of their gap; empty for a plain text."""
    return dict(_json(message.values)) if isinstance(message, Message) else {}


def shortened(message: str, most: int = LONGEST) -> str:
    """Return the message unchanged, or its English text cut to ``most`` characters if it is longer."""
    return message if len(message) <= most else message[:most]


def for_column(message: str, most: int = LONGEST) -> str:
    """Return the text that a message column stores, cut to ``most`` characters. For SQL statements without Django's
    ORM."""
    short = shortened(message, most)
    return short.stored() if isinstance(short, Message) else short


def for_json(message: str) -> Any:
    """Return a message for use inside JSON: its data if it has values or a code, else plain text."""
    return message.data() if isinstance(message, Message) and (message.values or message.stable_code) else str(message)


def _value(value: object) -> Any:
    if value is None or isinstance(value, Message | bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float):
        return value
    return tuple(_value(each) for each in value) if isinstance(value, Iterable) else str(value)


def _in_english(value: Any) -> str:
    if isinstance(value, tuple):
        return _LIST.join(map(_in_english, value))
    return "" if value is None else str(value)


def _json(value: Any) -> Any:
    if isinstance(value, Message):
        return value.data()
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    return [_json(each) for each in value] if isinstance(value, tuple) else value


def _read(data: object, depth: int) -> Message:
    """Return a message from untrusted data. Malformed data becomes text; data nested too deeply is dropped."""
    if isinstance(data, str) and data.startswith(_STORED):
        try:
            data = json.loads(data)
        except ValueError:
            return Message._made(str(data), "", _NO_VALUES)
    if not isinstance(data, Mapping):
        return Message._made(str(data), "", _NO_VALUES)
    template, code, values = data.get("text"), data.get("code"), data.get("values")
    template, code = (text if isinstance(text, str) else "" for text in (template, code))
    given = values if isinstance(values, Mapping) and depth else {}
    kept = {name: _read_value(given[name], depth - 1) for name in gaps(template) if name in given}
    return Message._made(template, code, kept)


def _read_value(value: object, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _read(value, depth)
    if isinstance(value, list):
        return tuple(_read_value(each, depth - 1) for each in value) if depth > 0 else ()
    return value if value is None or isinstance(value, str | int | float) else str(value)
