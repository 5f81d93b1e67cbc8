"""Slots: exact, named amounts of resources.

Internally an amount is an integer number of thousandths of the slot's unit (``cpu`` cores, ``mem`` bytes, accelerator
devices or shares), so that sums are exact in Python and in every database. In REST and messages amounts are decimal
strings.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

MILLI = 1000
LARGEST = 2**62  # fits a signed 64-bit column
_MOST_DIGITS = 40
_LEAST_PLAIN = 2**20  # bytes: whoever types a smaller number without a unit means MiB or GiB
INFINITY = "∞"

_RESOURCES = {
    "cpu": "CPU",
    "mem": "memory",
    "cuda.device": Message("GPU"),
    "cuda.shares": Message("GPU shares"),
    "rocm.device": "AMD GPU",
}
_BINARY_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(?:i?b)?\s*\Z", re.IGNORECASE)
_NAME = re.compile(r"^[a-z][a-z0-9]*([.\-_][a-z0-9]+)*\Z")


@dataclass(frozen=True, slots=True)
class Shortage:
    """A slot of which too little is available, with the requested and the available thousandths."""

    name: str
    wanted: int
    free: int

    def __str__(self) -> str:
        wanted, free = amount_in_words(self.name, self.wanted), format_amount(self.name, self.free)
        return Message("{wanted} requested, {free} available", wanted=wanted, free=free)


class Slots(Mapping[str, int]):
    """An immutable map from slot name to thousandths of the slot's unit. Amounts of zero are left out."""

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        self._amounts = {name: amount for name, amount in sorted(dict(amounts).items()) if amount}
        self._hash: int | None = None  # cached, as a pass looks up the same amounts thousands of times

    @classmethod
    def parse(cls, amounts: Mapping[str, Any], *, field: str = "resources", typed: bool = False) -> Slots:
        """Return slots from strings or numbers (``{"cpu": 1, "mem": "512m"}``), as ``parse_amount`` reads each. Raises
        UserError that names the invalid slot."""
        parsed = {name: parse_amount(name, one, field=f"{field}.{name}", typed=typed) for name, one in amounts.items()}
        return cls(parsed)

    def to_json(self) -> dict[str, str]:
        """Return exact decimal strings in the slot's unit: ``{"cpu": "0.5", "mem": "536870912"}``."""
        return {name: decimal_text(amount) for name, amount in self._amounts.items()}

    def __getitem__(self, name: str) -> int:
        return self._amounts.get(name, 0)

    def __contains__(self, name: object) -> bool:
        return name in self._amounts

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def items(self) -> ItemsView[str, int]:
        """Return pairs of name and amount."""
        return self._amounts.items()

    def __add__(self, other: Slots) -> Slots:
        return Slots({name: self[name] + other[name] for name in self._amounts.keys() | other._amounts.keys()})

    def __sub__(self, other: Slots) -> Slots:
        return Slots({name: self[name] - other[name] for name in self._amounts.keys() | other._amounts.keys()})

    def __mul__(self, count: int) -> Slots:
        return Slots({name: amount * count for name, amount in self._amounts.items()})

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Slots) and self._amounts == other._amounts)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._amounts.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Slots({self.describe() or 'nothing'})"

    def shortages(self, room: Slots) -> list[Shortage]:
        """Return every slot of which ``room`` has too little; empty if ``room`` has enough."""
        return [Shortage(name, wanted, room[name]) for name, wanted in self._amounts.items() if wanted > room[name]]

    def fits(self, room: Slots) -> bool:
        """Return whether ``room`` has enough of every slot."""
        return all(wanted <= room[name] for name, wanted in self._amounts.items())

    def describe(self) -> str:
        """Return the amounts for people: ``2 CPU cores, 4 GiB of memory``."""
        return Message.joined([amount_in_words(name, amount) for name, amount in self._amounts.items()], ", ")


def parse_amount(name: str, value: Any, *, field: str, typed: bool = False) -> int:
    """Return an amount in thousandths of the slot's unit. Sizes such as ``mem`` may be 512m, 2GiB, 1.5g or plain bytes.
    ``typed``: a person wrote it, who hardly means a few bytes by a plain number. Raises UserError."""
    if not _NAME.match(name):
        raise UserError("{name} is not a resource name.", name=repr(name), field=field, code="unknown-slot")
    if is_size(name):
        amount = _parse_size(value, field, typed=typed)
    else:
        _refuse_size(name, value, field)
        amount = _parse_number(value, field)
    if amount.adjusted() > _MOST_DIGITS:  # "1e999999" is short, but multiplying it would exhaust memory
        raise UserError("{value} is out of range.", value=value, field=field, code="invalid-amount")
    thousandths = amount * MILLI
    if thousandths != thousandths.to_integral_value():
        raise UserError(
            "{value} has too many decimals; the smallest step is 0.001.",
            value=value,
            field=field,
            code="invalid-amount",
        )
    if not 0 <= thousandths < LARGEST:
        raise UserError("{value} is out of range.", value=value, field=field, code="invalid-amount")
    return int(thousandths)


def parse_size(value: Any, *, field: str, typed: bool = False) -> int:
    """Return whole bytes from 512m, 2GiB, 1.5g or a plain number; ``typed`` as in ``parse_amount``. Raises
    UserError."""
    return int(_parse_size(value, field, typed=typed))


def is_size(name: str) -> bool:
    """Return whether the slot is counted in bytes."""
    return name in ("mem", "shm") or name.endswith(".mem")


def is_accelerator(name: str) -> bool:
    """Return whether the slot is neither cores nor memory."""
    return name not in ("cpu", "mem")


def kind_of(name: str) -> str:
    """Return the kind of accelerator that a slot counts: ``cuda`` for ``cuda.shares``."""
    return name.partition(".")[0]


def decimal_text(amount: int) -> str:
    """Return thousandths as an exact decimal string: 500 → ``0.5``, 2000 → ``2``."""
    whole, rest = divmod(abs(amount), MILLI)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{rest:03d}".rstrip("0") if rest else f"{sign}{whole}"


def format_amount(name: str, amount: int) -> str:
    """Return an amount for people: ``mem`` in binary units, the rest as a number."""
    return format_size(amount // MILLI) if is_size(name) else decimal_text(amount)


def written_amount(name: str, value: Any) -> Any:
    """Return an amount as people write it into a document: ``1g``, ``512m``, 2 or 0.5. Unchanged if it is none."""
    try:
        amount = parse_amount(name, value, field=name)
    except UserError:
        return value
    if not is_size(name):
        return float(decimal_text(amount)) if amount % MILLI else amount // MILLI
    size = amount // MILLI
    unit = next((unit for unit in "tgmk" if size and size % int(_BINARY_UNITS[unit]) == 0), "")
    return f"{size // int(_BINARY_UNITS[unit])}{unit}"


def amount_in_words(name: str, amount: int) -> str:
    """Return an amount with its resource: ``2 CPU cores``, ``4 GiB of memory``, ``1 npu.device``."""
    number = format_amount(name, amount)
    if name == "cpu":
        return Message("1 CPU core") if amount == MILLI else Message("{number} CPU cores", number=number)
    if name == "mem":
        return Message("{number} of memory", number=number)
    if name == "cuda.device":
        return Message("1 GPU") if amount == MILLI else Message("{number} GPUs", number=number)
    if name == "cuda.shares":
        return Message("1 GPU share") if amount == MILLI else Message("{number} GPU shares", number=number)
    if name == "rocm.device":
        return Message("1 AMD GPU") if amount == MILLI else Message("{number} AMD GPUs", number=number)
    return f"{number} {name}"


def kernels_in_words(number: int) -> Message:
    """Return a number of kernels for people: ``1 kernel``, ``3 kernels``."""
    return Message("1 kernel") if number == 1 else Message("{number} kernels", number=number)


def slot_in_words(name: str) -> str:
    """Return the resource of a slot for people; unknown accelerators keep their slot name."""
    return _RESOURCES.get(name, name)


def limit_text(limit: int | None, slot: str = "") -> str:
    """Return a limit for people: ``∞`` for None, else the number, or the amount of this slot."""
    if limit is None:
        return INFINITY
    return format_amount(slot, limit) if slot else str(limit)


def format_size(size: int) -> str:
    """Return a number of bytes for people: ``1.5 GiB``. Uses the largest binary unit in which the number is at least
    1."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def _parse_size(value: Any, field: str, *, typed: bool) -> Decimal:
    match = _SIZE.match(str(value)) if not isinstance(value, bool) else None
    if match is None or len(str(value)) > 40:
        raise UserError(
            "{value} is not a size: use 512m, 2g or bytes.", value=repr(value), field=field, code="invalid-amount"
        )
    size = Decimal(match[1]) * _BINARY_UNITS[match[2].lower()]
    if typed and 0 < size < _LEAST_PLAIN and str(value).strip() == match[1]:
        text = "{value} without a unit means bytes. Write {value}g or {value}m."
        raise UserError(text, value=match[1], field=field, code="unit-missing")
    return size.to_integral_value()


def _refuse_size(name: str, value: Any, field: str) -> None:
    """Raise UserError for a size of a slot that is hardly meant so: ``memory=4g``."""
    match = _SIZE.match(str(value))
    if name not in _RESOURCES and match and match[2]:
        text = "{name} takes no size such as {value}; only mem, shm and slots that end in .mem do. Did you mean mem?"
        raise UserError(text, name=name, value=str(value)[:40], field=field, code="unknown-slot")


def _parse_number(value: Any, field: str) -> Decimal:
    try:
        number = Decimal(str(value).strip()) if not isinstance(value, bool) else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or len(str(value)) > 40:
        raise UserError("{value} is not a number.", value=repr(value), field=field, code="invalid-amount")
    return number
