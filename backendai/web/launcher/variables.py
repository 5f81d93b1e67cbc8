"""Environment variables in a form: rows of a name and a value, as many as one likes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import ValidationError

from backendai.core.names import check_variable_name
from backendai.texts.translation import gettext as _
from backendai.texts.translation import gettext_lazy
from backendai.web.launcher.checks import checked

SPARE_ROWS = 3
_NOT_KEPT = gettext_lazy("Values that look secret are not kept in the address: enter %(name)s again.")
_Pair = tuple[str, str]


class Row(NamedTuple):
    """A row as the form shows it; ``wrong`` says what is wrong with it."""

    name: str
    value: str
    wrong: str


class VariableRows(forms.Widget):
    """Reads ``<name>.name`` and ``<name>.value``, each sent once per row."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[_Pair]:
        """Return the rows as they were typed, those between others that were left empty too."""
        rows = list(zip(data.getlist(f"{name}.name"), data.getlist(f"{name}.value"), strict=False))
        while rows and not any(text.strip() for text in rows[-1]):
            rows.pop()
        return rows

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether the form had no such rows at all."""
        return f"{name}.name" not in data


class VariablesField(forms.Field):
    """Becomes a mapping of names that can be a variable's."""

    widget = VariableRows
    emptied: Collection[str] = ()  # names whose values the page's address has not kept

    def clean(self, value: list[_Pair]) -> dict[str, str]:
        """Return the variables. What is wrong is told of each row, with its number (from 0) as the parameter ``row``:
        a name that is none or is the platform's, one that is there twice, a value or a name without the other."""
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
    """Any number of names, which the page itself sends back."""

    widget = forms.MultipleHiddenInput


def rows_of(value: Mapping[str, str] | list[_Pair] | None, wrong: Iterable[ValidationError] = ()) -> list[Row]:
    """Return the rows to show, each with what is ``wrong`` with it: those there are, and some to fill in."""
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
