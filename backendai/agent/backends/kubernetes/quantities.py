"""Reads amounts in Kubernetes' notation: 1900m, 16Gi, 2e9."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from backendai.base.core.slots import MILLI

_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)} | {
    letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)
}


def thousandths(text: object) -> int:
    """Return an amount in thousandths of its unit, rounded down. Raises ValueError."""
    said = str(text).strip()
    unit = said[-2:] if said[-2:] in _BINARY else said[-1:] if said[-1:] in _DECIMAL and not said[-1:].isdigit() else ""
    factor = Decimal(_BINARY[unit]) if unit in _BINARY else _DECIMAL[unit]
    try:
        return int(Decimal(said.removesuffix(unit)) * factor * MILLI)
    except (InvalidOperation, OverflowError) as error:
        raise ValueError(f"{text!r} is no amount") from error
