"""Fields of the launch form whose choices depend on the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.forms.models import ModelChoiceIterator

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.groups.changes import choose_group
from backendai.domain.cluster.models import Agent, ResourceGroup


class _RowsOfField(ModelChoiceIterator):
    """Iterates over the loaded rows of the field. Django would query them each time that a page shows them."""

    def __iter__(self) -> Iterator[Any]:
        if self.field.empty_label is not None:
            yield ("", self.field.empty_label)
        for row in cast(Any, self.field).rows:
            yield self.choice(row)

    def __len__(self) -> int:
        return len(cast(Any, self.field).rows) + (self.field.empty_label is not None)

    def __bool__(self) -> bool:
        return len(self) > 0


class RowsField(forms.ModelChoiceField):
    """A choice among rows that are already loaded."""

    iterator = _RowsOfField
    rows: Sequence[Model] = ()

    def offer(self, rows: Sequence[Model]) -> None:
        """Set the rows to choose from."""
        self.rows = rows
        cast(Any, self.widget).choices = self.choices

    def to_python(self, value: Any) -> Any:
        """Return the chosen row. Raises ValidationError if it is not among the offered ones."""
        if value in self.empty_values:
            return None
        model = cast(Any, self.queryset).model
        column = model._meta.get_field(self.to_field_name) if self.to_field_name else model._meta.pk
        try:
            wanted = column.to_python(value)
        except ValidationError:
            wanted = None
        found = next((row for row in self.rows if getattr(row, column.attname) == wanted), None)
        if found is None:
            raise ValidationError(self.error_messages["invalid_choice"], code="invalid_choice", params={"value": value})
        return found


class ImageField(forms.ModelChoiceField):
    """An image by its name or alias."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._found: dict[str, Image | None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> ImageField:
        """Return a copy for another form, with an empty cache of images."""
        copied: ImageField = super().__deepcopy__(memo)
        copied._found = {}
        return copied

    def offer(self, owner: User) -> None:
        """Offer the images that this person may use."""
        self._owner = owner

    def know(self, images: Iterable[Image]) -> None:
        """Cache these images, so that they are not queried again."""
        self._found |= {image.name: image for image in images}

    def find(self, text: str) -> Image | None:
        """Return the image with this name or alias, or None. Results are cached, as a page needs them several times."""
        name = text[:255]
        if name not in self._found:
            askable = name and "\0" not in name
            self._found[name] = next(iter(_named(self._owner, name)), None) if askable else None
        return self._found[name]

    def to_python(self, value: Any) -> Any:
        """Return the image. Raises ValidationError if there is none."""
        if value in self.empty_values:
            return None
        found = self.find(str(value))
        if found is None:
            raise ValidationError(self.error_messages["invalid_choice"], code="invalid_choice", params={"value": value})
        return found

    def prepare_value(self, value: Any) -> Any:
        """Return the value of the choice for this image: its name."""
        if isinstance(value, str) and value:
            found = self.find(value)
            return found.name if found else value
        return super().prepare_value(value)


def offer_groups(form: forms.Form) -> ResourceGroup | None:
    """Preselect the default resource group and return it; without one the form asks."""
    field = cast(Any, form.fields["resource_group"])
    usual = choose_group(list(field.rows))
    if usual is not None:
        form.initial.setdefault("resource_group", usual.name)
    elif len(field.rows) > 1:
        field.empty_label = _("Choose one")
        field.help_text = _("Several are open to you, and none of them is the default.")
    return usual


def offer_agents(form: forms.Form, *, wanted: bool) -> None:
    """Offer the agents to choose from, if ``wanted``; else remove the field."""
    if not wanted:
        del form.fields["agents"]
        return
    groups = cast(Any, form.fields["resource_group"]).rows
    rows = Agent.objects.registered().filter(resource_group__in=groups).order_by("name")
    names = rows.values_list("name", "resource_group__name")
    choices = [(name, f"{name} ({group})") for name, group in names]
    cast(Any, form.fields["agents"]).choices = [("", _("any agent")), *choices]


def _named(owner: Any, name: Any) -> QuerySet[Any, Any]:
    return Image.objects.usable_by(owner).named(name)[:1]
