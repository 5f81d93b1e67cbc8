"""Forms of the panel: grouped fields, and a check that nobody overwrites unseen changes of others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model
from django.forms import BoundField
from django.forms.models import model_to_dict
from django.forms.utils import pretty_name
from django.utils.functional import Promise
from django.utils.html import format_html

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields with a heading."""

    title: str | Promise
    fields: list[BoundField]


class GroupedFields(forms.BaseForm):
    """A form for ``web/panel/form.html``. ``groups`` are headings with their fields; fields without one come first."""

    groups: ClassVar[tuple[tuple[str | Promise, tuple[str, ...]], ...]] = ()

    def field_groups(self) -> Iterator[FieldGroup]:
        """Yield the visible fields in their groups."""
        named = {name for _, names in self.groups for name in names}
        rest = [bound for bound in self.visible_fields() if bound.name not in named]
        if rest:
            yield FieldGroup("", rest)
        for title, names in self.groups:
            if fields := [self[name] for name in names if name in self.fields]:
                yield FieldGroup(title, fields)


class EditForm(GroupedFields, forms.ModelForm):
    """The form of one row."""

    words_for_none: ClassVar[Mapping[str, str | Promise]] = {}  # the empty choice of a field, other than "none"
    shown_at: ClassVar[Mapping[str, str]] = {}  # where a verb calls something otherwise than the form: its field
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            if isinstance(field, forms.ModelChoiceField) and field.empty_label:
                usual = _("choose one") if field.required else _("none")
                field.empty_label = str(self.words_for_none.get(name, usual))
        say_in_words(self)
        if self.instance.pk and not self.instance._state.adding:
            self._stored_version = version_of(self.instance, self._names())
            self.initial["version"] = self._stored_version
        else:
            self._stored_version = ""

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error if the row was changed after the form was shown."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self._stored_version and cleaned.get("version") != self._stored_version:
            stored = type(self.instance)._default_manager.get(pk=self.instance.pk)
            refuse_unseen(self, self._stored_version, model_to_dict(stored, self._names()))
        return cleaned

    def _update_errors(self, errors: ValidationError) -> None:
        """Add the model's errors, except at fields that already have one; for those the model saw the old value."""
        by_field = getattr(errors, "error_dict", {})
        for name in set(by_field) & set(self.errors):
            del by_field[name]
        super()._update_errors(errors)  # type: ignore[misc]

    def values(self) -> dict[str, Any]:
        """Return the typed values of those of the model's fields that the form has, for a service."""
        names: list[str] = self.Meta.fields  # type: ignore[attr-defined]
        return {name: self.cleaned_data[name] for name in names if name in self.cleaned_data}

    def _names(self) -> list[str]:
        return [name for name in self.fields if name != "version"]


def refuse_unseen(form: forms.BaseForm, version: str, stored: Mapping[str, Any]) -> None:
    """Add an error that names the values changed by others.

    The form then has the new version, so it can be sent again.
    """
    form.data = typed = form.data.copy()  # type: ignore[attr-defined]
    typed[form.add_prefix("version")] = version
    other = [
        _("%(field)s is now %(value)s") % {"field": field.label or name, "value": _words(field, stored[name])}
        for name, field in form.fields.items()
        if name in stored and field.has_changed(stored[name], form[name].data)
    ]
    detail = f" ({'; '.join(other)})" if other else ""
    text = _("This was changed by someone else while you were editing%(detail)s. Save again to overwrite.")
    form.add_error(None, text % {"detail": detail})


def say_in_words(form: forms.BaseForm) -> None:
    """Translate labels, help texts and choices, which come from models, into the language of the page."""
    for name, field in form.fields.items():
        if not isinstance(field.label, Promise):
            field.label = in_words(pretty_name(name) if field.label is None else field.label)
        if not isinstance(field.help_text, Promise):
            field.help_text = in_words(field.help_text)
        if isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField):
            choices: Any = field.choices
            field.choices = [(value, in_words(word)) for value, word in choices]


def version_of(row: Model, names: list[str]) -> str:
    """Return a short digest of these fields of a stored row; it changes with their values."""
    values = model_to_dict(row, names)
    return digest_of({name: _plain(value) for name, value in values.items()})


def digest_of(values: Mapping[str, Any]) -> str:
    """Return a short digest of JSON values."""
    text = json.dumps(values, sort_keys=True, cls=DjangoJSONEncoder)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, Model) for one in value):
        return sorted(str(one.pk) for one in value)
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)


def _words(field: forms.Field, value: Any) -> str:
    """Return a value as the form would show it."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or _("empty")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(field, forms.ModelChoiceField) and value is not None:
        row = field.queryset.filter(pk=value).first() if field.queryset is not None else None
        return str(row or value)
    if isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField):
        return str(dict(field.choices).get(value, value))  # type: ignore[arg-type]
    shown = field.prepare_value(value)
    return str(shown) if shown not in (None, "") else _("empty")


def name_text(text: str) -> str:
    """Return a name with its own writing direction, which does not affect the text around it."""
    return format_html("<bdi>{}</bdi>", text)
