"""Validates resource policies: their amounts must parse, and their limits must allow some session to run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import decimal_text, parse_amount

LONGEST = timedelta(days=3650)


def clean_amounts(amounts: Any, *, field: str) -> dict[str, str]:
    """Return the amounts as exact decimal strings, zeros included. Raises UserError that names the invalid one."""
    if not isinstance(amounts, Mapping):
        raise UserError("Write slots with their amounts, such as cpu=8, mem=64g.", field=field, code="invalid-amounts")
    return {name: decimal_text(_parsed(name, value, field)) for name, value in sorted(amounts.items())}


def _parsed(name: str, value: Any, field: str) -> int:
    try:
        return parse_amount(name, value, field=field, typed=True)
    except UserError as error:
        if error.code == "unknown-slot":  # it names the slot already
            raise
        raise UserError("{name}: {problem}", name=name, problem=error.message, field=field, code=error.code) from error


def thousandths(amounts: Mapping[str, str], *, field: str) -> dict[str, int]:
    """Return stored amounts as thousandths. Unlike ``Slots`` it keeps a zero, which here means "none of it"."""
    return {name: parse_amount(name, value, field=field) for name, value in amounts.items()}


def wrong_limits(max_kernels: int | None, max_lifetime: timedelta | None) -> dict[str, str]:
    """Return the errors of limits that would prevent every session, by field."""
    wrong: dict[str, str] = {}
    if max_kernels == 0:
        wrong["max_kernels_per_session"] = Message(
            "A session has at least 1 kernel: write 1 or more, or leave it empty."
        )
    if max_lifetime is not None and not timedelta(0) < max_lifetime <= LONGEST:
        text = Message("Write a time longer than 0 and of at most {days} days, or leave it empty.", days=LONGEST.days)
        wrong["max_session_lifetime"] = text
    return wrong
