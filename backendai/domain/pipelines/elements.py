"""The elements of a step: an array of indexes, a matrix of values, or a list. Pure; no database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import ceil, prod
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.domain.templates.parameters import as_text

MOST_TASKS = 10_000
NAME = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
FAN_KEYS = frozenset({"array", "matrix", "foreach", "at_once", "probe", "give_up_after", "retry"})
_KINDS = ("array", "matrix", "foreach")
_VALUE = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_SHARE = re.compile(r"(100|[1-9]?[0-9])%", re.ASCII)
_LARGEST_INDEX = 1_000_000
_LONGEST_VALUE = 1_000


@dataclass(frozen=True, slots=True)
class FanOut:
    """The elements of a step by their turn; ``values``: the variables of each, empty where there are none."""

    indexes: list[int]
    values: list[dict[str, str]] = field(default_factory=list)
    at_once: int = 0
    probe: int = 0
    give_up_after: int = 0

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.indexes)

    @property
    def variables(self) -> set[str]:
        """The names of the variables that differ from element to element."""
        return {name for one in self.values for name in one}


def fan_of(said: Mapping[str, Any], prefix: str) -> FanOut:
    """Return the elements that a step asks for; one if it says nothing. Raises a UserError that names the key."""
    kinds = [kind for kind in _KINDS if said.get(kind) is not None]
    if len(kinds) > 1:
        raise _wrong(f"{prefix}{kinds[1]}", Message("Use one of {kinds}.", kinds=", ".join(kinds)))
    indexes, values = [0], list[dict[str, str]]()
    if kinds == ["array"]:
        indexes = _indexes(said["array"], f"{prefix}array")
    elif kinds:
        made = _matrix if kinds == ["matrix"] else _list
        values = made(said[kinds[0]], f"{prefix}{kinds[0]}")
        indexes = list(range(len(values)))
    size = len(indexes)
    return FanOut(
        indexes,
        values,
        number_of(said.get("at_once", 0), f"{prefix}at_once"),
        number_of(said.get("probe", 0), f"{prefix}probe"),
        _give_up(said.get("give_up_after", 0), f"{prefix}give_up_after", size),
    )


def number_of(said: Any, where: str) -> int:
    """Return a number of elements; 0 means no limit."""
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said <= MOST_TASKS:
        raise _wrong(where, Message("Write a number from 0 to {most}.", most=MOST_TASKS))
    return said


def _indexes(said: Any, where: str) -> list[int]:
    if isinstance(said, bool) or not isinstance(said, int | list):
        raise _wrong(where, Message("Write how many elements there are, or a list of their numbers."))
    if isinstance(said, int):
        _check_size(said, where)
        return list(range(said))
    _check_size(len(said), where)
    for number, one in enumerate(said):
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one <= _LARGEST_INDEX:
            text = Message("Write numbers from 0 to {most}.", most=_LARGEST_INDEX)
            raise _wrong(f"{where}.{number}", text)
    if len(set(said)) < len(said):
        raise _wrong(where, Message("An element is listed twice."))
    return sorted(said)


def _matrix(said: Any, where: str) -> list[dict[str, str]]:
    if not isinstance(said, Mapping):
        raise _wrong(where, Message("Write names with lists of values."))
    axes = {key: value for key, value in said.items() if key not in ("include", "exclude")}
    for name, values in axes.items():
        if not _VALUE.fullmatch(str(name)):
            text = Message("A value is named in small letters, digits and _ (32 at most).")
            raise _wrong(f"{where}.{name}", text)
        if not isinstance(values, list) or not values:
            raise _wrong(f"{where}.{name}", Message("Write a list of values."))
        for number, value in enumerate(values):
            _check_value(value, f"{where}.{name}.{number}")
    _check_size(prod(len(values) for values in axes.values()) if axes else 0, where, least=0)
    rows = [dict(zip(axes, one, strict=True)) for one in product(*axes.values())] if axes else []
    excluded = _rows(said.get("exclude"), f"{where}.exclude")
    rows = [row for row in rows if not any(all(row.get(k) == v for k, v in one.items()) for one in excluded)]
    rows += _rows(said.get("include"), f"{where}.include")
    _check_size(len(rows), where)
    return [{_variable(name): as_text(value) for name, value in row.items()} for row in rows]


def _list(said: Any, where: str) -> list[dict[str, str]]:
    if not isinstance(said, list):
        raise _wrong(where, Message("Write a list of values."))
    _check_size(len(said), where)
    found = []
    for number, one in enumerate(said):
        if isinstance(one, Mapping):
            (row,) = _rows([one], where)
            found.append({_variable(name): as_text(value) for name, value in row.items()})
        else:
            _check_value(one, f"{where}.{number}")
            found.append({_variable("item"): as_text(one)})
    return found


def _rows(said: Any, where: str) -> list[dict[str, Any]]:
    if said is None:
        return []
    if not isinstance(said, list) or len(said) > MOST_TASKS or any(not isinstance(one, Mapping) for one in said):
        raise _wrong(where, Message("Write a list of names with their values."))
    for number, row in enumerate(said):
        for name, value in row.items():
            if not _VALUE.fullmatch(str(name)):
                text = Message("A value is named in small letters, digits and _ (32 at most).")
                raise _wrong(f"{where}.{number}.{name}", text)
            _check_value(value, f"{where}.{number}.{name}")
    return [dict(row) for row in said]


def _check_value(value: Any, where: str) -> None:
    if not isinstance(value, str | int | float) or len(as_text(value)) > _LONGEST_VALUE:
        raise _wrong(where, Message("Write a text of {most} characters at most, or a number.", most=_LONGEST_VALUE))


def _check_size(size: int, where: str, least: int = 1) -> None:
    if not least <= size <= MOST_TASKS:
        text = Message("{size} elements: use {least} to {most}.", size=size, least=max(least, 1), most=MOST_TASKS)
        raise _wrong(where, text, "too-many-elements" if size > MOST_TASKS else "no-elements")


def _give_up(said: Any, where: str, size: int) -> int:
    if isinstance(said, str) and (found := _SHARE.fullmatch(said)):
        return max(1, ceil(size * int(found[1]) / 100)) if int(found[1]) else 0
    if isinstance(said, bool) or not isinstance(said, int):
        raise _wrong(where, Message("Write a number of failures, or a share such as {example}.", example="5%"))
    return number_of(said, where)


def _variable(name: str) -> str:
    return f"PARAM_{name.upper()}"


def _wrong(where: str, text: str, code: str = "invalid-document") -> UserError:
    return UserError(text, field=where, code=code)
