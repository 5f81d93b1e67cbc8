"""Validates images of the catalogue: a minimum below the maximum, and services that parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.service_ports import read_service_ports
from backendai.base.core.slots import Slots, format_amount


def wrong_image(minimum: Any, maximum: Any, services: str) -> dict[str, str]:
    """Return the errors of an image by field; empty if it is valid."""
    wrong: dict[str, str] = {}
    bounds: dict[str, Slots] = {}
    for field, amounts in (("minimum", minimum), ("maximum", maximum)):
        try:
            bounds[field] = _parsed(amounts, field)
        except UserError as error:
            wrong[field] = error.message
    if not wrong and (text := _nothing_between(bounds["minimum"], bounds["maximum"])):
        wrong["maximum"] = text
    try:
        read_service_ports(services)
    except UserError as error:
        wrong["services"] = error.message
    return wrong


def exact_bounds(amounts: Mapping[str, Any]) -> dict[str, str]:
    """Return valid amounts as exact decimal strings."""
    return Slots.parse(amounts).to_json()


def _parsed(amounts: Any, field: str) -> Slots:
    if not isinstance(amounts, Mapping):
        raise UserError("Write slots with their amounts, such as cpu=1, mem=1g.", field=field, code="invalid-amounts")
    return Slots.parse(amounts, field=field, typed=True)


def _nothing_between(minimum: Slots, maximum: Slots) -> str:
    for name, most in maximum.items():
        if minimum[name] > most:
            least, largest = format_amount(name, minimum[name]), format_amount(name, most)
            return Message(
                "{name}: the largest is {largest}, but the smallest is {least}.",
                name=name,
                largest=largest,
                least=least,
            )
    return ""
