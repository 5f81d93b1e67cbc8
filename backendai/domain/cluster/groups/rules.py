"""Validates the rules of resource groups when they are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.slots import parse_amount
from backendai.domain.cluster.app_domains import wrong_app_domain
from backendai.domain.cluster.groups.session_defaults import parse_session_defaults
from backendai.scheduler.strategies import StrategyView, describe_strategies

if TYPE_CHECKING:
    from backendai.domain.cluster.models import ResourceGroup

SEQUENCE, SELECTION = "sequence", "selection"
LONGEST = timedelta(days=3650)
SHORTEST_HALF_LIFE = timedelta(days=1)
# field → whether zero has a meaning
_DURATIONS = {
    "overtaking_limit": True,
    "pending_timeout": True,
    "pull_timeout": False,
    "create_timeout": False,
    "terminate_timeout": False,
    "agent_lost_grace": True,
    "preempt_after": True,
}
_OPTIONAL = frozenset({"preempt_after"})


def strategies(level: str) -> dict[str, StrategyView]:
    """Return the strategies of a level (``sequence`` or ``selection``) by name."""
    return {view.name: view for view in describe_strategies() if view.level == level}


def wrong_rules(group: ResourceGroup) -> dict[str, str]:
    """Return the errors of the group's rules by field; empty if they are valid."""
    return {field: text for check in _CHECKS for field, text in check(group)}


def _strategies(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    for level, name in ((SEQUENCE, group.sequence), (SELECTION, group.selection)):
        known = strategies(level)
        if name not in known:
            yield (
                level,
                Message("Unknown {level} {name}: choose one of {known}.", level=level, name=repr(name), known=known),
            )


def _session_types(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    types: Any = group.allowed_session_types
    if not _is_list_of_text(types) or not types:
        yield "allowed_session_types", Message("Choose one or more of {session_types}.", session_types=KINDS)
        return
    for name in types:
        if name not in KINDS:
            yield (
                "allowed_session_types",
                Message(
                    "Unknown session type {name}: choose one of {session_types}.", name=repr(name), session_types=KINDS
                ),
            )


def _slot_order(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    slots: Any = group.slot_order
    if not _is_list_of_text(slots):
        yield "slot_order", Message('Write a list of slots, such as ["cuda.device", "cpu", "mem"].')
        return
    for name in slots:
        try:
            parse_amount(name, 0, field="slot_order")
        except UserError as error:
            yield "slot_order", error.message
        if slots.count(name) > 1:
            yield "slot_order", Message("{name} is listed twice.", name=name)


def _durations(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    for field, may_be_zero in _DURATIONS.items():
        value: Any = getattr(group, field)
        if value is None and field in _OPTIONAL:
            continue
        if not isinstance(value, timedelta):
            yield field, Message("{value} is not a valid duration.", value=repr(value))
        elif value < timedelta(0) or (not value and not may_be_zero):
            least = Message("0 or more") if may_be_zero else Message("more than 0")
            yield (
                field,
                Message(
                    "It is {seconds} s; {least} is required.",
                    seconds=f"{value.total_seconds():g}",
                    least=least,
                ),
            )
        elif value > LONGEST:
            yield (
                field,
                Message("It is {days} days; at most {most} are allowed.", days=value.days, most=LONGEST.days),
            )


def _half_life(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    value: Any = group.usage_half_life
    if not isinstance(value, timedelta) or not SHORTEST_HALF_LIFE <= value <= timedelta(days=365):
        value = f"{value / timedelta(days=1):.3g} days" if isinstance(value, timedelta) else value
        yield "usage_half_life", Message("It is {value}; usage is counted by day: choose 1 to 365 days.", value=value)


def _app_domain(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    if wrong := wrong_app_domain(group.app_domain):
        yield "app_domain", wrong


def _session_defaults(group: ResourceGroup) -> Iterator[tuple[str, str]]:
    try:
        parse_session_defaults(group.session_defaults, typed=True)
    except UserError as error:
        yield "session_defaults", error.message


_CHECKS: tuple[Callable[[ResourceGroup], Iterator[tuple[str, str]]], ...] = (
    _strategies,
    _session_types,
    _slot_order,
    _durations,
    _half_life,
    _session_defaults,
    _app_domain,
)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
