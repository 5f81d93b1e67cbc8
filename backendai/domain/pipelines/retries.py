"""When elements of a step are tried again, as a document says it. Pure; no database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import nearest_to
from backendai.domain.templates.parameters import seconds_of

REASONS = ("agent-lost", "failed-to-start", "out-of-memory", "task-failed", "task-timeout")
MOST_TIMES = 20
_EXIT = re.compile(r"exit:([1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])", re.ASCII)
_KEYS = frozenset({"times", "reasons", "wait", "factor", "most", "more"})
_LARGEST_FACTOR = 10


def retry_of(said: Any, where: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rule as a step keeps it; empty for none. Raises a UserError that names the key."""
    if said is None or said == 0:
        return {}
    if isinstance(said, int) and not isinstance(said, bool):
        said = {"times": said}
    if not isinstance(said, Mapping):
        raise _wrong(where, Message("Write keys with their values, or a number of tries."))
    for key in said:
        if key not in _KEYS:
            near = nearest_to(str(key), _KEYS) or ", ".join(sorted(_KEYS))
            text = Message("Unknown key {key}: use {near}.", key=repr(str(key)[:64]), near=near)
            raise _wrong(f"{where}.{str(key)[:64]}", text, "unknown-field")
    times = said.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or not 0 <= times <= MOST_TIMES:
        raise _wrong(f"{where}.times", Message("Write a number from 0 to {most}.", most=MOST_TIMES))
    return {
        "times": times,
        "reasons": _reasons(said.get("reasons"), f"{where}.reasons"),
        "wait": seconds_of(said.get("wait", 0), f"{where}.wait"),
        "factor": _factor(said.get("factor", 2), f"{where}.factor"),
        "most": seconds_of(said.get("most", 3600), f"{where}.most"),
        "more": _more(said.get("more"), f"{where}.more", resources),
    }


def _reasons(said: Any, where: str) -> list[str]:
    if said is None:
        return []
    if not isinstance(said, list) or len(said) > 32:
        raise _wrong(where, Message("Write a list of reasons."))
    for number, one in enumerate(said):
        if one not in REASONS and not (isinstance(one, str) and _EXIT.fullmatch(one)):
            text = Message("Use {values} or exit:N.", values=", ".join(REASONS))
            raise _wrong(f"{where}.{number}", text)
    return [str(one) for one in said]


def _more(said: Any, where: str, resources: Mapping[str, Any]) -> dict[str, float]:
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise _wrong(where, Message("Write slots with the factor by which they grow."))
    for slot in said:
        if slot not in resources:
            text = Message("{slot} does not grow: the resources of the step do not name it.", slot=repr(str(slot)[:64]))
            raise _wrong(f"{where}.{str(slot)[:64]}", text)
    return {str(slot): _factor(factor, f"{where}.{slot}") for slot, factor in said.items()}


def _factor(said: Any, where: str) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not 1 <= said <= _LARGEST_FACTOR:
        raise _wrong(where, Message("Write a factor from 1 to {most}.", most=_LARGEST_FACTOR))
    return float(said)


def _wrong(where: str, text: str, code: str = "invalid-document") -> UserError:
    return UserError(text, field=where, code=code)
