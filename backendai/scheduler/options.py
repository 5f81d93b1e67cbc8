"""Options of strategies: each declares its type and range, so that forms can show and check it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from backendai.base.core.messages import Message

Kind = Literal["integer", "number", "boolean", "text"]

_TYPES: dict[Kind, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "boolean": (bool,), "text": (str,)}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a strategy. ``least`` and ``most`` bound numbers (None: no bound); ``help`` is one line."""

    name: str
    kind: Kind
    default: object
    help: str
    least: float | None = None
    most: float | None = None


def check_options(declared: Iterable[Option], given: Mapping[str, object]) -> dict[str, object]:
    """Return every declared option with its given value or its default; ValueError names an invalid value and its
    range. Undeclared options are rejected: the name may be mistyped."""
    known = {option.name: option for option in declared}
    for name in given:
        if name not in known:
            raise ValueError(f"no option is called {name!r}: {_listing(known)}")
    return {name: _checked(option, given[name]) if name in given else option.default for name, option in known.items()}


def own_options(declared: Iterable[Option], given: Mapping[str, object]) -> dict[str, object]:
    """Return each declared option with its given value or its default.

    Given options of other strategies are ignored. Raises ValueError for an invalid value.
    """
    known = tuple(declared)
    names = {option.name for option in known}
    return check_options(known, {name: value for name, value in given.items() if name in names})


def _listing(known: Mapping[str, Option]) -> str:
    return Message("use one of {known}", known=known) if known else Message("the chosen strategies have none")


def _checked(option: Option, value: object) -> object:
    is_wrong = not isinstance(value, _TYPES[option.kind])
    if isinstance(value, bool) and option.kind != "boolean":  # for Python a bool is an integer
        is_wrong = True
    if is_wrong:
        raise ValueError(f"option {option.name} must be of type {option.kind}, not {value!r}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        too_little = option.least is not None and not value >= option.least  # so that not-a-number fails too
        too_much = option.most is not None and not value <= option.most
        if too_little or too_much:
            raise ValueError(f"option {option.name} is {value}: it must be {_range(option)}")
    return value


def _range(option: Option) -> str:
    if option.least is None:
        return Message("at most {most}", most=f"{option.most:g}")
    if option.most is None:
        return Message("at least {least}", least=f"{option.least:g}")
    return Message("between {least} and {most}", least=f"{option.least:g}", most=f"{option.most:g}")
