"""Form fields for amounts, written as people write them: ``cpu=8, mem=64g``, and ``256m``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.base.core.labels import LONGEST_TEXT, check_label_keys
from backendai.base.core.messages import Message
from backendai.base.core.slots import is_size, parse_size
from backendai.domain.accounts.policies.rules import clean_amounts

_UNITS = (("p", 2**50), ("t", 2**40), ("g", 2**30), ("m", 2**20), ("k", 2**10))


class AmountsField(forms.CharField):
    """A form field for slots with amounts in one line. Its value maps slot names to exact decimal strings."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.TextInput(attrs={"size": 60, "placeholder": "cpu=8, mem=64g"}))
        super().__init__(required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows: sizes in the largest unit that keeps them exact."""
        if not isinstance(value, Mapping):
            return value
        return ", ".join(f"{name}={_short(name, str(amount))}" for name, amount in sorted(value.items()))

    def to_python(self, value: Any) -> dict[str, str]:  # type: ignore[override]
        """Return the amounts by slot. Raises ValidationError that quotes the invalid part."""
        amounts: dict[str, str] = {}
        wrong: list[str] = []
        for part in str(value or "").replace("\n", ",").split(","):
            name, sign, amount = (piece.strip() for piece in part.partition("="))
            if not name and not amount:
                continue
            if not sign:
                wrong.append(Message("“{part}”: enter a slot and its amount, such as cpu=8.", part=part.strip()))
            elif name in amounts:
                wrong.append(Message("{name} is listed twice.", name=name))
            else:
                amounts[name] = amount
        wrong += filter(None, (_flaw(name, amount) for name, amount in amounts.items()))
        if wrong:
            raise ValidationError(wrong)
        return clean_amounts(amounts, field="amounts")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the typed amounts differ from the initial ones; their notation does not matter."""
        try:
            return self.to_python(data) != (initial or {})
        except ValidationError:
            return True


def _flaw(name: str, amount: str) -> str:
    """Return the error of one amount, empty if it is valid. The form lists the errors of all amounts."""
    try:
        clean_amounts({name: amount}, field="amounts")
    except UserError as error:
        return error.message
    return ""


class SizeField(forms.CharField):
    """A form field for an amount of memory: ``256m``, ``2GiB``. Its value is whole bytes, or None if it is empty."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.TextInput(attrs={"size": 12, "placeholder": "256m"}))
        super().__init__(required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows: the size in the largest unit that keeps it exact."""
        return _short("mem", str(value)) if isinstance(value, int) else value

    def to_python(self, value: Any) -> int | None:  # type: ignore[override]
        """Return the size in bytes. Raises ValidationError that quotes the typed text."""
        text = str(value if value is not None else "").strip()
        if not text:
            return None
        try:
            return parse_size(text, field="size", typed=True)
        except UserError as error:
            raise ValidationError(error.message) from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the typed size differs from the initial one; its notation does not matter."""
        try:
            return self.to_python(data) != initial
        except ValidationError:
            return True


class LabelKeysField(forms.CharField):
    """A form field for keys of labels, separated by commas or spaces. Its value is the sorted list."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=LONGEST_TEXT, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]
        """Return the keys. Raises ValidationError that quotes the invalid one."""
        try:
            return check_label_keys(str(value or "").replace(",", " ").split(), field="required_labels")
        except UserError as error:
            raise ValidationError(error.message, code=error.code) from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the typed keys differ from the initial ones; their order does not matter."""
        try:
            return self.to_python(data) != (initial or [])
        except ValidationError:
            return True


def _short(name: str, amount: str) -> str:
    if is_size(name) and amount.isdigit():
        for unit, size in _UNITS:
            if int(amount) and int(amount) % size == 0:
                return f"{int(amount) // size}{unit}"
    return amount
