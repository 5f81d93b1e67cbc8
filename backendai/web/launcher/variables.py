"""Environment variables in a form: rows of a name and a value, as many as one likes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from backendai.core.names import check_variable_name
from backendai.web.launcher.checks import checked

SPARE_ROWS = 3
_Pair = tuple[str, str]


class VariableRows(forms.Widget):
    """Reads ``<name>.name`` and ``<name>.value``, each sent once per row."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[_Pair]:
        """Return the rows as they were typed, without those left empty."""
        names, values = data.getlist(f"{name}.name"), data.getlist(f"{name}.value")
        return [pair for pair in zip(names, values, strict=False) if any(text.strip() for text in pair)]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether the form had no such rows at all."""
        return f"{name}.name" not in data


class VariablesField(forms.Field):
    """Becomes a mapping of names that can be a variable's."""

    widget = VariableRows

    def clean(self, value: list[_Pair]) -> dict[str, str]:
        """Return the variables; refuses a value without a name, a name without a value, and a name given twice."""
        found: dict[str, str] = {}
        for name, text in ((name.strip(), text) for name, text in value):
            if not name:
                raise ValidationError(f"The value {text!r} has no name.", code="missing-name")
            if not text:
                raise ValidationError(f"{name} has no value.", code="missing-value")
            if name in found:
                raise ValidationError(f"{name} is there twice.", code="twice")
            found[checked(check_variable_name, name)] = text
        return found


def rows_of(value: Mapping[str, str] | list[_Pair] | None) -> list[_Pair]:
    """Return the rows to show: those there are, and some to fill in."""
    rows = list(value.items()) if isinstance(value, Mapping) else list(value or ())
    return [*rows, *[("", "")] * SPARE_ROWS]
