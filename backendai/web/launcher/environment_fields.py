"""Fields of the environment: the image and the variables."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _

from backendai.accounts.models import User
from backendai.catalog.models import Image
from backendai.web.launcher.choices import ImageField
from backendai.web.launcher.variables import VariablesField, rows_of


class EnvironmentFields(forms.Form):
    """The image, and the variables that its programs see."""

    image = ImageField(
        Image.objects.none(),
        to_field_name="name",
        empty_label=None,
        widget=forms.RadioSelect,
        label=_("Image"),
    )
    environ = VariablesField(required=False, label=_("Environment variables"))

    def offer_images(self, user: User) -> None:
        """Let people choose what this user may use."""
        cast(Any, self.fields["image"]).queryset = Image.objects.usable_by(user)

    def variable_rows(self) -> list[tuple[str, str]]:
        """Return the environment variables so far, and empty rows."""
        return rows_of(self["environ"].value())
