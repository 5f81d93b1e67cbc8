"""What an idle checker may say. What is wrong is refused by field when it is saved, never ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backendai.core.errors import UserError
from backendai.core.names import check_catalogue_name
from backendai.core.session_kinds import kinds_with
from backendai.core.slots import parse_amount
from backendai.scheduler.find_idle import NETWORK, UTILIZATION

if TYPE_CHECKING:
    from backendai.cluster.idle_models import IdleChecker

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
    """Return what is wrong with a checker, by field; empty when it can be carried out."""
    return {field: text for check in _CHECKS for field, text in check(checker)}


def _name(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    try:
        check_catalogue_name(checker.name)
    except UserError as error:
        yield "name", error.message


def _times(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    for field, (least, most) in _NAMES.items():
        value: Any = getattr(checker, field)
        if not isinstance(value, timedelta):
            yield field, f"{value!r} is no length of time."
        elif value < least:
            yield field, f"It is {value.total_seconds():g} s; at least {least.total_seconds():g} s is needed."
        elif value > most:
            yield field, f"It is {value.days} days; the most is {most.days}."


def _warning(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    """Nobody could ever be without a warning that comes as early as the limit itself begins."""
    limit, warning = checker.limit, checker.warning
    if not isinstance(limit, timedelta) or not isinstance(warning, timedelta) or checker.kind == UTILIZATION:
        return
    if warning > limit / 2:
        text = f"It is {warning.total_seconds():g} s; at most half of the limit, {limit.total_seconds() / 2:g} s."
        yield "warning", text


def _thresholds(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    thresholds: Any = checker.thresholds
    if not isinstance(thresholds, dict):
        yield "thresholds", 'Write slots with percentages, such as {"cuda.device": 5}.'
        return
    if checker.kind == UTILIZATION and not thresholds:
        yield "thresholds", "Write at least one slot with a percentage, such as cuda.device=5."
    elif checker.kind not in (UTILIZATION, NETWORK) and thresholds:
        yield "thresholds", "The longest run does not depend on what is used: leave it empty."
    for slot, percent in thresholds.items():
        try:
            parse_amount(slot, 0, field="thresholds")
        except UserError as error:
            yield "thresholds", error.message
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent <= 100:
            yield "thresholds", f"{slot} is {percent!r}; write a percentage above 0, and 100 at most."
    if thresholds and isinstance(checker.limit, timedelta) and checker.limit > LONGEST_WINDOW:
        yield "limit", f"Use is averaged over {LONGEST_WINDOW.total_seconds() / 3600:g} hours at most."


def _session_types(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    types: Any = checker.session_types
    known = kinds_with("is_checked")
    if not isinstance(types, list) or not types or not set(map(str, types)) <= set(known):
        yield "session_types", f"Choose one or more of {', '.join(known)}."


def _extensions(checker: IdleChecker) -> Iterator[tuple[str, str]]:
    number: Any = checker.max_extensions
    if not isinstance(number, int) or not 0 <= number <= MOST_EXTENSIONS:
        yield "max_extensions", f"It is {number!r}; use a number from 0 to {MOST_EXTENSIONS}."


_CHECKS: tuple[Callable[[IdleChecker], Iterator[tuple[str, str]]], ...] = (
    _name,
    _times,
    _warning,
    _thresholds,
    _session_types,
    _extensions,
)
