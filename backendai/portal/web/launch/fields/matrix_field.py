"""The values of an array in the launch form: a line with values for each name.

The elements are all combinations of the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.pipelines.elements import fan_of
from backendai.domain.templates.parameters import as_text

LONGEST = 20_000


class MatrixField(forms.CharField):
    """A field whose value is lists of values by name, from lines such as ``lr = 0.1, 0.01``."""

    widget = forms.Textarea

    def clean(self, value: Any) -> dict[str, list[str]]:
        """Return the values. Raises ValidationError with the number of an invalid line, or for too many elements."""
        found: dict[str, list[str]] = {}
        for number, line in enumerate(super().clean(value).splitlines(), 1):
            if line.strip():
                name, values = _read(line, number)
                if name in found:
                    raise _wrong(_("Line %(number)s: %(name)s is listed twice."), number, name=name)
                found[name] = values
        if found:
            try:
                fan_of({"matrix": found}, "")
            except UserError as error:
                raise ValidationError(_named(error), code=error.code) from None
        return found


def matrix_text(matrix: Mapping[str, Any]) -> str | None:
    """Return a matrix as the field's lines; None if lines cannot represent it."""
    lines = []
    for name, values in matrix.items():
        texts = [as_text(one) for one in values] if isinstance(values, list) else []
        if name in ("include", "exclude") or any(not one or one != one.strip() or "," in one for one in texts):
            return None
        if not texts or any(len(one.splitlines()) != 1 for one in texts):
            return None
        lines.append(f"{name} = {', '.join(texts)}")
    return "\n".join(lines)


def size_of(matrix: Mapping[str, list[str]]) -> int:
    """Return the number of elements of a matrix; 0 without values."""
    return fan_of({"matrix": matrix}, "").size if matrix else 0


def _read(line: str, number: int) -> tuple[str, list[str]]:
    name, equals, rest = line.partition("=")
    values = [one.strip() for one in rest.split(",")]
    if not equals or not name.strip():
        raise _wrong(_("Line %(number)s: write a name and its values, such as lr = 0.1, 0.01"), number)
    if not all(values):
        raise _wrong(_("Line %(number)s: a value of %(name)s is empty."), number, name=name.strip())
    return name.strip(), values


def _named(error: UserError) -> str:
    """Return the error text with the name that it is about."""
    name = (error.field or "").split(".")[1:2]
    return f"{name[0]}: {in_words(error.message)}" if name else str(in_words(error.message))


def _wrong(text: str, number: int, **said: str) -> ValidationError:
    return ValidationError(text % {"number": number, **said}, code="invalid-matrix")
