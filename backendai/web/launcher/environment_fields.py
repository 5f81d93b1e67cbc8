"""Fields of the environment: the image, chosen or typed, and the variables."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from django import forms

from backendai.accounts.models import User
from backendai.catalog.models import Image
from backendai.cluster.site import site_settings
from backendai.core.errors import UserError
from backendai.core.image_names import parse_image_name
from backendai.texts.translation import gettext_lazy as _
from backendai.web.launcher.choices import ImageField
from backendai.web.launcher.environments import Offer, offer_for
from backendai.web.launcher.variables import NamesField, Row, VariablesField, rows_of

_MANUAL = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}


class EnvironmentFields(forms.Form):
    """The image, and the variables that its programs see."""

    image = ImageField(
        Image.objects.none(),
        to_field_name="name",
        empty_label=None,
        widget=forms.RadioSelect,
        label=_("Image"),
    )
    manual_image = forms.CharField(
        required=False,
        max_length=255,
        label=_("Image name"),
        help_text=_("Instead of the choice above: the name or reference of an image that you may use."),
        widget=forms.TextInput(attrs=_MANUAL | {"placeholder": "registry.example.org/lab/python:3.12"}),
    )
    environ = VariablesField(required=False, label=_("Environment variables"))
    emptied = NamesField(required=False)

    def _clean_fields(self) -> None:
        names = self["emptied"].value()
        cast(Any, self.fields["environ"]).emptied = frozenset(names if isinstance(names, list) else ())
        super()._clean_fields()  # type: ignore[misc]

    def offer_images(self, user: User) -> None:
        """Let people choose what this user may use, and type its name where the site takes that."""
        self._user = user
        cast(Any, self.fields["image"]).offer(user)
        if not site_settings().manual_image:
            del self.fields["manual_image"]

    def choose_first_image(self) -> None:
        """Begin with an environment that can be chosen where the form stands, unless it says one."""
        if self.is_bound or self.initial.get("image"):
            return
        _, group = cast(Any, self).place()
        if first := self.offer.first_in(group):
            self.initial["image"] = first.name

    def clean_manual_image(self) -> str:
        """Return the name of the image that was typed; what its owner may not use is unknown like what is not there."""
        typed = str(self.cleaned_data["manual_image"])
        if not typed:
            return ""
        try:
            parse_image_name(typed, field="manual_image")
        except UserError as error:
            raise forms.ValidationError(error.message, code=error.code) from None
        found = cast(Any, self.fields["image"]).find(typed)
        if found is None:
            raise forms.ValidationError(
                _("No image of this name is open to %(owner)s."),
                code="unknown-image",
                params={"owner": self._user.email},
            )
        self._typed_image = found
        return str(found.name)

    def clean(self) -> dict[str, Any] | None:
        """Let the image whose name was typed stand instead of a choice."""
        data = super().clean()
        if self.is_image_typed():
            self.errors.pop("image", None)
            if self.cleaned_data.get("manual_image"):
                self.cleaned_data["image"] = self._typed_image
        return data

    def is_image_typed(self) -> bool:
        """Return whether a typed name stands instead of a choice."""
        return "manual_image" in self.fields and bool(str(self["manual_image"].value() or "").strip())

    @cached_property
    def offer(self) -> Offer:
        """What can be chosen in the project and the group in which the form stands."""
        form = cast(Any, self)
        project, group = form.place()
        rows = form.fields["project"].rows
        offer = offer_for(self._user, project=next((row for row in rows if str(row.pk) == project), None), group=group)
        form.fields["image"].know(offer.images)
        return offer

    @property
    def image_names(self) -> list[str]:
        """The names of the images that can be chosen where the form stands."""
        return sorted({image.name for image in self.offer.images})

    @property
    def environment_key(self) -> str:
        """The environment whose version is chosen now; empty: none."""
        name = self["image"].value()
        return next((each.key for each in self.offer.environments if each.has(str(name))), "")

    def typed_variables(self) -> list[tuple[str, str]]:
        """Return the environment variables so far, right or wrong."""
        return [(row.name, row.value) for row in self.variable_rows() if row.name or row.value]

    def variable_rows(self) -> list[Row]:
        """Return the environment variables so far with what is wrong with each, and empty rows."""
        return rows_of(self["environ"].value(), self["environ"].errors.as_data())
