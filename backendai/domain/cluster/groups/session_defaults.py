"""The defaults of a resource group for launches that omit a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_variable_name
from backendai.base.core.slots import parse_size

NAMES = ("priority", "batch_timeout", "shm", "environ")
HIGHEST_PRIORITY = 100
LONGEST_RUN = timedelta(days=3650)
_LONGEST_VALUE, _MOST_VARIABLES = 8192, 100


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """The defaults of a group; None and empty: the platform's own default.

    ``batch_timeout`` is for batch sessions. Variables named by the launch take precedence.
    """

    priority: int | None = None
    batch_timeout: timedelta | None = None
    shm: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


def parse_session_defaults(stored: Any, *, typed: bool = False) -> SessionDefaults:
    """Return the defaults in a group's column.

    Its form is ``{"priority": 20, "batch_timeout": 7200, "shm": "256m", "environ": {"NAME": "value"}}``, with the time
    in seconds. ``typed``: a person has just written them, as in ``parse_size``. Raises UserError that names the invalid
    part.
    """
    if not isinstance(stored, Mapping):
        raise _wrong(Message('Write names with their values, such as {"priority": 20}.'))
    unknown = sorted(map(str, set(stored) - set(NAMES)))
    if unknown:
        raise _wrong(
            Message("Unknown default {unknown}: choose one of {names}.", unknown=repr(unknown[0]), names=NAMES)
        )
    return SessionDefaults(
        _priority(stored.get("priority")),
        _time(stored.get("batch_timeout")),
        _shm(stored.get("shm", ""), typed=typed),
        _environ(stored.get("environ", {})),
    )


def _priority(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= HIGHEST_PRIORITY:
        raise _wrong(
            Message(
                "The priority is {value}; use a number from 0 to {highest_priority}.",
                value=repr(value),
                highest_priority=HIGHEST_PRIORITY,
            )
        )
    return value


def _time(value: Any) -> timedelta | None:
    if value is None:
        return None
    longest = LONGEST_RUN.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= longest:
        raise _wrong(
            Message(
                "The batch timeout is {value}; use seconds, more than 0 and at most {longest}.",
                value=repr(value),
                longest=f"{longest:.0f}",
            )
        )
    return timedelta(seconds=value)


def _shm(value: Any, *, typed: bool) -> str:
    if value in ("", None):
        return ""
    if not isinstance(value, str):
        raise _wrong(Message("The shared memory is {value}; write a size such as 256m.", value=repr(value)))
    try:
        parse_size(value, field="session_defaults", typed=typed)
    except UserError as error:
        raise _wrong(Message("Shared memory: {message}", message=error.message)) from None
    return value


def _environ(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > _MOST_VARIABLES:
        raise _wrong(
            Message(
                'Write at most {most_variables} variables with their values, such as {"NAME": "value"}.',
                most_variables=_MOST_VARIABLES,
            )
        )
    for name, text in value.items():
        try:
            check_variable_name(str(name))
        except UserError as error:
            raise _wrong(error.message) from None
        if not isinstance(text, str) or len(text) > _LONGEST_VALUE or "\0" in text:
            raise _wrong(
                Message(
                    "The value of {name} must be a text of at most {longest_value} characters.",
                    name=name,
                    longest_value=_LONGEST_VALUE,
                )
            )
    return dict(value)


def _wrong(message: str) -> UserError:
    return UserError(message, field="session_defaults", code="invalid-session-defaults")
