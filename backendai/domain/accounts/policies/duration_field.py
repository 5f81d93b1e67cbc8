"""A form field for durations such as ``30m``, ``2h 30m`` and ``7d``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.dateparse import parse_duration

from backendai.base.core.durations import LONGEST
from backendai.base.core.messages import Message

_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_UNITS = {
    **dict.fromkeys(("w", "week", "weeks"), "w"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "m"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([a-z]+)")
_SEVERAL = re.compile(rf"(?:{_PART.pattern}[\s,]*)+")


class TimeSpanField(forms.DurationField):
    """A form field for a duration; its value is a timedelta. It also accepts ``days hh:mm:ss``."""

    default_error_messages = {
        "invalid": Message("Write a number with its unit, such as 90s, 30m, 2h or 7d."),
        "too-long": Message("Write a duration of at most 36525 days."),
    }

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.TextInput(attrs={"size": 22, "placeholder": Message("such as 30m, 2h, 7d")}))
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        return short_duration(value) if isinstance(value, timedelta) else value

    def to_python(self, value: Any) -> timedelta | None:
        """Return the duration, or None for an empty field. Rejects a number without a unit, except 0."""
        if value in self.empty_values or isinstance(value, timedelta):
            return value or (value if isinstance(value, timedelta) else None)
        try:
            found = _parse(str(value).strip().lower())
        except (ValueError, OverflowError):
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None
        if abs(found) > LONGEST:
            raise ValidationError(self.error_messages["too-long"], code="too-long")
        return found


def short_duration(duration: timedelta) -> str:
    """Return an exact duration in the notation of the field: ``2h 30m``, ``7d``, ``0``."""
    seconds = abs(duration).total_seconds()
    parts = []
    for unit, size in list(_SECONDS.items())[1:-1]:  # weeks are understood, and days are written
        number, seconds = divmod(seconds, size)
        parts += [f"{number:g}{unit}"] if number else []
    parts += [f"{seconds:g}s"] if seconds else []
    return ("-" if duration < timedelta(0) else "") + " ".join(parts) if parts else "0"


def _parse(text: str) -> timedelta:
    sign = -1 if text.startswith("-") else 1
    unsigned = text.removeprefix("-").strip()
    if re.fullmatch(r"0+|-\d{1,9}", text):  # nothing needs no unit; less than it is refused, whatever its unit
        return timedelta(seconds=int(text))
    if _SEVERAL.fullmatch(unsigned):
        parts = [(float(number), _UNITS.get(unit, "")) for number, unit in _PART.findall(unsigned)]
        return sign * timedelta(seconds=sum(number * _SECONDS[unit] for number, unit in _known(parts)))
    found = parse_duration(text) if ":" in text else None
    if found is None:
        raise ValueError(text)
    return found


def _known(parts: list[tuple[float, str]]) -> list[tuple[float, str]]:
    if not all(unit for _, unit in parts):
        raise ValueError("an unknown unit")
    return parts
