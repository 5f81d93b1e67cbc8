"""Fields of the environment: the image, chosen or typed, and the environment variables."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from django import forms

from backendai.base.core.errors import UserError
from backendai.base.core.image_names import parse_image_name
from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.services.agents.environ import THREAD_COUNTS
from backendai.portal.web.launch.fields.choices import ImageField
from backendai.portal.web.launch.fields.environments import Offer, offer_for
from backendai.portal.web.launch.fields.variables import NamesField, Row, VariablesField, rows_of
from backendai.portal.web.launch.steps import ignore_errors

_MANUAL = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}


class EnvironmentFields(forms.Form):
    """The image, and the environment variables of its programs."""

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

    def full_clean(self) -> None:
        """Validate the form; the names of emptied variables are known before the variables are read."""
        names = self["emptied"].value()
        cast(Any, self.fields["environ"]).emptied = frozenset(names if isinstance(names, list) else ())
        super().full_clean()

    def offer_images(self, user: User) -> None:
        """Offer the images that this user may use. Keeps the field for a typed name if the site allows it."""
        self._user = user
        cast(Any, self.fields["image"]).offer(user)
        if not site_settings().manual_image:
            del self.fields["manual_image"]

    def choose_first_image(self) -> None:
        """Preselect an image that can start in the form's project and group, unless one is preselected."""
        if self.is_bound or self.initial.get("image"):
            return
        _, group = cast(Any, self).place()
        if first := self.offer.first_in(group):
            self.initial["image"] = first.name

    def clean_manual_image(self) -> str:
        """Return the typed name of an image. Raises ValidationError if it is missing, or the owner may not use it."""
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
        """Use the image with the typed name instead of the chosen one."""
        data = super().clean()
        if self.is_image_typed():
            self.errors.pop("image", None)
            if self.cleaned_data.get("manual_image"):
                self.cleaned_data["image"] = self._typed_image
        return data

    def is_image_typed(self) -> bool:
        """Return whether an image name is typed, which replaces the choice."""
        return "manual_image" in self.fields and bool(str(self["manual_image"].value() or "").strip())

    @cached_property
    def offer(self) -> Offer:
        """The environments that can be chosen in the form's current project and group."""
        form = cast(Any, self)
        project, group = form.place()
        rows = form.fields["project"].rows
        offer = offer_for(self._user, project=next((row for row in rows if str(row.pk) == project), None), group=group)
        form.fields["image"].know(offer.images)
        return offer

    @property
    def image_names(self) -> list[str]:
        """The names of the images that can be chosen in the form's current project and group."""
        return sorted({image.name for image in self.offer.images})

    @property
    def environment_key(self) -> str:
        """The key of the environment whose version is chosen now; empty: none."""
        name = self["image"].value()
        return next((each.key for each in self.offer.environments if each.has(str(name))), "")

    def typed_variables(self) -> list[tuple[str, str]]:
        """Return the entered environment variables, valid or not."""
        return [(row.name, row.value) for row in self.variable_rows() if row.name or row.value]

    def variable_rows(self) -> list[Row]:
        """Return a row for each entered variable with its error, and empty rows."""
        return rows_of(self["environ"].value(), self["environ"].errors.as_data())


AUTOMATIC, BY_HAND = "auto", "manual"
MOST_THREADS = 1000


def _number(label: str) -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=1, max_value=MOST_THREADS, initial=1, label=label)


class ThreadFields(forms.Form):
    """The numbers of threads: as many as the session has cores, or typed numbers."""

    threads = forms.ChoiceField(
        required=False,
        choices=[(AUTOMATIC, _("Automatic")), (BY_HAND, _("Set by hand"))],
        initial=AUTOMATIC,
        widget=forms.RadioSelect,
        label=_("Threads"),
    )
    omp_threads = _number("OMP_NUM_THREADS")
    openblas_threads = _number("OPENBLAS_NUM_THREADS")

    def clean(self) -> dict[str, Any] | None:
        """Ignore errors of numbers that are not used."""
        data = super().clean()
        if not self.is_by_hand():
            ignore_errors(self, "omp_threads", "openblas_threads")
        return data

    def is_by_hand(self) -> bool:
        """Return whether the user types the numbers."""
        return str(self["threads"].value()) == BY_HAND

    def thread_counts(self) -> dict[str, str]:
        """Return the environment variables with the typed numbers; empty if the session's cores decide."""
        if not self.is_by_hand():
            return {}
        numbers = (self.cleaned_data["omp_threads"], self.cleaned_data["openblas_threads"])
        return {name: str(number or 1) for name, number in zip(THREAD_COUNTS, numbers, strict=True)}
