"""Environment variables in a form: any number of rows with name and value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import ValidationError

from backendai.base.core.names import check_variable_name
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy
from backendai.portal.web.launch.steps import checked

SPARE_ROWS = 3
_NOT_KEPT = gettext_lazy("Values that look secret are not kept in the address: enter %(name)s again.")
_Pair = tuple[str, str]


class Row(NamedTuple):
    """A row of the form; ``wrong`` is its error."""

    name: str
    value: str
    wrong: str


class VariableRows(forms.Widget):
    """Reads ``<name>.name`` and ``<name>.value``, each sent once per row."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[_Pair]:
        """Return the typed rows, without empty ones at the end."""
        rows = list(zip(data.getlist(f"{name}.name"), data.getlist(f"{name}.value"), strict=False))
        while rows and not any(text.strip() for text in rows[-1]):
            rows.pop()
        return rows

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether the form data has no such rows."""
        return f"{name}.name" not in data


class VariablesField(forms.Field):
    """A field whose value maps names of environment variables to values."""

    widget = VariableRows
    emptied: Collection[str] = ()  # names whose values the page's address has not kept

    def clean(self, value: list[_Pair]) -> dict[str, str]:
        """Return the variables.

        Raises ValidationError with the number (from 0) of each invalid row as the parameter ``row``. Invalid are
        malformed, reserved or repeated names, and rows without a name or a value.
        """
        found: dict[str, str] = {}
        wrong: list[ValidationError] = []
        for row, (typed, text) in enumerate(value):
            name = typed.strip()
            try:
                if name or text.strip():
                    found[_checked(name, text, found, self.emptied)] = text
            except ValidationError as error:
                params = {"row": row, "text": error.messages[0]}
                wrong.append(ValidationError("%(text)s", code=error.code, params=params))
        if wrong:
            raise ValidationError(wrong)
        return found


class NamesField(forms.Field):
    """A list of names of any length, which the page itself sends."""

    widget = forms.MultipleHiddenInput


def rows_of(value: Mapping[str, str] | list[_Pair] | None, wrong: Iterable[ValidationError] = ()) -> list[Row]:
    """Return a row for each variable with its error, and some empty rows."""
    pairs = list(value.items()) if isinstance(value, Mapping) else list(value or ())
    texts = {(error.params or {}).get("row"): error.messages[0] for error in wrong}
    return [Row(name, text, texts.get(row, "")) for row, (name, text) in enumerate([*pairs, *[("", "")] * SPARE_ROWS])]


def _checked(name: str, text: str, before: Mapping[str, str], emptied: Collection[str]) -> str:
    if not name:
        raise ValidationError(_("This value has no name."), code="missing-name")
    checked(check_variable_name, name)
    if not text:
        said = _("%(name)s has no value.") if name not in emptied else _NOT_KEPT
        raise ValidationError(said, code="missing-value", params={"name": name})
    if name in before:
        raise ValidationError(_("%(name)s is set twice."), code="twice", params={"name": name})
    return name
