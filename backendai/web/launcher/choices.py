"""What can be chosen on the launch form beyond what its fields say."""

from __future__ import annotations

from typing import Any, cast

from django import forms

from backendai.cluster.groups import choose_group
from backendai.cluster.models import Agent, ResourceGroup


class ImageField(forms.ModelChoiceField):
    """An image by its name or another name of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names: dict[str, str | None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> ImageField:
        """Return a field for another form, which knows no names yet."""
        copied: ImageField = super().__deepcopy__(memo)
        copied._names = {}
        return copied

    def to_python(self, value: Any) -> Any:
        """Return the image; a ValidationError when there is none."""
        try:
            return super().to_python(value)
        except forms.ValidationError:
            found = cast(Any, self.queryset).named(str(value)[:255]).first()
            if found is None:
                raise
            return found

    def prepare_value(self, value: Any) -> Any:
        """Return what the choice that stands for it has as its value."""
        if isinstance(value, str) and value and self.queryset is not None:
            if value not in self._names:  # asked for several times while a page is made
                self._names[value] = cast(Any, self.queryset).named(value[:255]).values_list("name", flat=True).first()
            return self._names[value] or value
        return super().prepare_value(value)


def offer_groups(form: forms.Form) -> ResourceGroup | None:
    """Begin with the group of launches that name none, and return it; where there is none, ask."""
    field = cast(Any, form.fields["resource_group"])
    usual = choose_group(list(field.queryset))
    if usual is not None:
        form.initial.setdefault("resource_group", usual.name)
    elif len(field.queryset) > 1:
        field.empty_label = "Choose one"
        field.help_text = "Several are open to you, and none of them is the default."
    return usual


def offer_agents(form: forms.Form, *, wanted: bool) -> None:
    """Let people choose a machine, where that is ``wanted``."""
    if not wanted:
        del form.fields["agents"]
        return
    groups = cast(Any, form.fields["resource_group"]).queryset
    rows = Agent.objects.registered().filter(resource_group__in=groups).order_by("name")
    names = rows.values_list("name", "resource_group__name")
    choices = [(name, f"{name} ({group})") for name, group in names]
    cast(Any, form.fields["agents"]).choices = [("", "any node"), *choices]
