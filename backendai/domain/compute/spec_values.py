"""Reads single values of a launch request; pydantic shows the errors at their fields."""

from __future__ import annotations

from collections.abc import Sized
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime, parse_duration
from pydantic_core import PydanticCustomError

from backendai.base.core.durations import EARLIEST, LATEST, LONGEST, seconds_in
from backendai.base.core.session_kinds import launched_kinds

LONGEST_AMOUNT = 40
MOST_ENTRIES = 1000


def launched_kind(name: str) -> str:
    """Return the name of a kind of sessions that people launch. Raises PydanticCustomError for another name."""
    names = [kind for kind, _label in launched_kinds()]
    if name not in names:
        raise PydanticCustomError("session_type", "Use {names}.", {"names": " or ".join(names)})
    return name


def bounded(values: Any) -> Any:
    """Return a list or mapping unchanged. Raises PydanticCustomError above 1,000 entries, each of which could fail."""
    if isinstance(values, Sized) and len(values) > MOST_ENTRIES:
        raise PydanticCustomError("too_many", "Write at most {most} entries.", {"most": MOST_ENTRIES})
    return values


def stripped(text: str) -> str:
    """Return the text without spaces at its ends."""
    return text.strip()


def storable(text: str) -> str:
    """Return the text. Raises PydanticCustomError for a null character or a surrogate, which no database stores."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise PydanticCustomError("not_storable", "Null characters and surrogates are not allowed.")
    return text


def amount(value: Any) -> int | float | str:
    """Return a number or a short text unchanged; ``core.slots`` validates it. Raises PydanticCustomError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > LONGEST_AMOUNT:
        raise PydanticCustomError("amount", 'Write a number or a text such as "512m".')
    return value


def moment(value: Any) -> datetime:
    """Return a time between 1970 and 3000; one without a zone is in the portal's. Raises PydanticCustomError."""
    found = value
    if isinstance(value, str):
        try:
            found = parse_datetime(value.strip())
        except ValueError:
            found = None
    if not isinstance(found, datetime):
        raise PydanticCustomError("moment", "Write a time such as 2030-01-31T12:00:00Z.")
    if timezone.is_naive(found):
        found = timezone.make_aware(found)
    if not EARLIEST <= found < LATEST:
        raise PydanticCustomError("moment", "Write a time between 1970 and 3000.")
    return found


def duration(value: Any) -> timedelta:
    """Return the duration in ``90s``, ``15m``, ``2h``, ``1d``, seconds or hh:mm:ss. Raises PydanticCustomError."""
    found = value if isinstance(value, timedelta) else None
    try:
        if (seconds := seconds_in(value)) is not None:
            found = timedelta(seconds=seconds)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            found = parse_duration(str(value))
    except OverflowError:
        found = None
    if found is None or not -LONGEST <= found <= LONGEST:
        raise PydanticCustomError("duration", "Write a duration such as 90s, 15m, 2h or 1d, seconds, or hh:mm:ss.")
    return found
