"""Validates idle checkers when they are saved."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_catalogue_name
from backendai.base.core.session_kinds import kinds_with
from backendai.base.core.slots import parse_amount
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.scheduler.idle_kinds import IDLE_KINDS

if TYPE_CHECKING:
    from backendai.domain.cluster.models import IdleChecker

SHORTEST_LIMIT, LONGEST = timedelta(minutes=1), timedelta(days=3650)
SHORTEST_WARNING = timedelta(seconds=30)
LONGEST_WINDOW = timedelta(hours=24)
MOST_EXTENSIONS = 100
_NAMES = {
    "limit": (SHORTEST_LIMIT, LONGEST),
    "grace": (timedelta(0), LONGEST),
    "warning": (SHORTEST_WARNING, timedelta(days=30)),
    "extension": (SHORTEST_LIMIT, timedelta(days=30)),
}


def wrong_checker(checker: IdleChecker) -> dict[str, str]:
    """Return the errors of a checker by field; empty if it is valid."""
    checks = (_name, _times, _warning, _thresholds, _session_types, _extensions)
    return {field: text for check in checks for field, text in check(checker)}


def _name(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    try:
        check_catalogue_name(checker.name)
    except UserError as error:
        yield "name", error.message


def _times(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    for field, (least, most) in _NAMES.items():
        value: Any = getattr(checker, field)
        if not isinstance(value, timedelta):
            yield field, Message("{value} is not a valid duration.", value=repr(value))
        elif value < least:
            yield (
                field,
                Message(
                    "It is {written}; at least {least} is needed.",
                    written=short_duration(value),
                    least=short_duration(least),
                ),
            )
        elif value > most:
            yield field, Message("It is {days} days; at most {most} are allowed.", days=value.days, most=most.days)


def _warning(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    """Yield an error if the warning time exceeds half of the limit.

    With a warning as long as the limit, every session would always be warned.
    """
    limit, warning, kind = checker.limit, checker.warning, IDLE_KINDS.get(checker.kind)
    if not isinstance(limit, timedelta) or not isinstance(warning, timedelta) or (kind and kind.is_average):
        return
    if warning > limit / 2:
        text = Message(
            "It is {written}; at most half of the limit, {most}.",
            written=short_duration(warning),
            most=short_duration(limit / 2),
        )
        yield "warning", text


def _thresholds(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    thresholds: Any = checker.thresholds
    if not isinstance(thresholds, dict):
        yield "thresholds", Message('Write slots with percentages, such as {"cuda.device": 5}.')
        return
    kind = IDLE_KINDS.get(checker.kind)
    if kind and (wrong := kind.thresholds_refused if thresholds else kind.thresholds_missing):
        yield "thresholds", wrong
    for slot, percent in thresholds.items():
        try:
            parse_amount(slot, 0, field="thresholds")
        except UserError as error:
            yield "thresholds", error.message
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent <= 100:
            yield (
                "thresholds",
                Message(
                    "{slot} is {percent}; write a percentage above 0, and 100 at most.",
                    slot=slot,
                    percent=repr(percent),
                ),
            )
    if thresholds and isinstance(checker.limit, timedelta) and checker.limit > LONGEST_WINDOW:
        yield (
            "limit",
            Message(
                "Utilization is averaged over at most {seconds} hours.",
                seconds=f"{LONGEST_WINDOW.total_seconds() / 3600:g}",
            ),
        )


def _session_types(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    types: Any = checker.session_types
    known = kinds_with("is_checked")
    if not isinstance(types, list) or not types or not set(map(str, types)) <= set(known):
        yield "session_types", Message("Choose one or more of {known}.", known=known)


def _extensions(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    number: Any = checker.max_extensions
    if not isinstance(number, int) or not 0 <= number <= MOST_EXTENSIONS:
        yield (
            "max_extensions",
            Message(
                "It is {number}; use a number from 0 to {most_extensions}.",
                number=repr(number),
                most_extensions=MOST_EXTENSIONS,
            ),
        )
