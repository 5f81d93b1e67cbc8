"""Forms of the pages. They read what was typed; services decide whether it can be met."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, cast

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.utils import timezone

from backendai.accounts.models import Project, User
from backendai.catalog.models import Image, ResourcePreset
from backendai.cluster.models import ResourceGroup
from backendai.compute.spec import SessionSpec
from backendai.compute.status import SessionType
from backendai.core.errors import UserError
from backendai.web.resources import name_of_slot

_FIELD_OF = {"type": "session_type", "resources.cpu": "cpu", "resources.mem": "mem", "resources.shm": "mem"}
_VALIDITIES = [("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("0", "until it is revoked")]
_NUMBER = {"inputmode": "decimal", "autocomplete": "off"}
_PLAIN_SLOTS = {"cpu", "mem", "shm"}


class LoginForm(AuthenticationForm):
    """E-mail address and password."""

    error_messages = AuthenticationForm.error_messages | {
        "invalid_login": "This e-mail address and password do not belong together. Both are checked exactly."
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail address"
        self.fields["username"].widget = forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        self.fields["password"].label = "Password"


class TokenForm(forms.Form):
    """A new access token: what it is for, and until when."""

    name = forms.CharField(
        max_length=64, label="What is it for?", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    days = forms.TypedChoiceField(label="Valid for", coerce=int, initial="90", choices=_VALIDITIES)

    def expires_at(self) -> datetime | None:
        """Return when it ends, None for never."""
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=days) if days else None


class LaunchForm(forms.Form):
    """What to start, on what, and how large. A preset stands for its numbers; custom takes those typed."""

    CUSTOM = ""

    request_key = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    image = forms.ModelChoiceField(
        Image.objects.none(), to_field_name="name", empty_label=None, widget=forms.RadioSelect
    )
    name = forms.CharField(required=False, label="Name", help_text="Left empty, a name is made from the environment.")
    session_type = forms.ChoiceField(choices=SessionType, initial=SessionType.INTERACTIVE, widget=forms.RadioSelect)
    startup_command = forms.CharField(
        required=False,
        label="Startup command",
        help_text="Runs in a shell as soon as the session is ready; the session ends with it.",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )
    project = forms.ModelChoiceField(Project.objects.none(), empty_label=None)
    resource_group = forms.ModelChoiceField(
        ResourceGroup.objects.none(), to_field_name="name", empty_label=None, label="Resource group"
    )
    preset = forms.ModelChoiceField(
        ResourcePreset.objects.none(),
        required=False,
        blank=True,
        empty_label="Custom",
        widget=forms.RadioSelect,
    )
    cpu = forms.CharField(required=False, initial="1", label="CPU cores", widget=forms.TextInput(attrs=_NUMBER))
    mem = forms.CharField(required=False, initial="1g", label="Memory", help_text="Such as 512m or 4g.")

    def __init__(self, *args: Any, user: User, slots: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = {
            "image": Image.objects.usable_by(user),
            "project": Project.objects.usable_by(user),
            "resource_group": ResourceGroup.objects.visible_to(user).filter(is_active=True),
            "preset": ResourcePreset.objects.visible_to(user).select_related("resource_group"),
        }
        for name, rows in choices.items():
            cast(Any, self.fields[name]).queryset = rows
        self.accelerators = sorted(set(slots) - _PLAIN_SLOTS)
        for slot in self.accelerators:
            self.fields[f"slot.{slot}"] = forms.CharField(
                required=False, label=name_of_slot(slot), widget=forms.TextInput(attrs=_NUMBER | {"placeholder": "0"})
            )

    @staticmethod
    def first_image(user: User) -> str | None:
        """Return the name of the image that is chosen at first."""
        return Image.objects.usable_by(user).values_list("name", flat=True).first()

    def spec(self) -> SessionSpec:
        """Return the request as the services take it."""
        data = self.cleaned_data
        preset = data["preset"]
        batch = data["session_type"] == SessionType.BATCH
        return SessionSpec(
            image=data["image"].name,
            name=data["name"].strip(),
            session_type=data["session_type"],
            resources={} if preset else self._typed(),
            preset=preset.name if preset else "",
            resource_group=data["resource_group"].name,
            project=data["project"].pk,
            startup_command=data["startup_command"] if batch else "",
        )

    def refuse(self, error: UserError) -> None:
        """Show a refusal at the field it names, else on top."""
        name = _FIELD_OF.get(error.field or "", error.field or "")
        if name.startswith("resources."):
            name = "slot." + name.removeprefix("resources.")
        if self.cleaned_data.get("preset") and name in ("cpu", "mem"):
            name = "preset"
        self.add_error(name if name in self.fields else None, error.message)

    def accelerator_fields(self) -> list[forms.BoundField]:
        """Return the fields of accelerators that the groups offer."""
        return [self[f"slot.{slot}"] for slot in self.accelerators]

    def _typed(self) -> dict[str, str]:
        names = {"cpu": "cpu", "mem": "mem"} | {slot: f"slot.{slot}" for slot in self.accelerators}
        return {slot: value for slot, field in names.items() if (value := self.cleaned_data[field].strip())}
