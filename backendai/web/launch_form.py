"""The launch form: what to start, on what, and how large."""

from __future__ import annotations

import zoneinfo
from collections.abc import Collection, Mapping, Sequence
from datetime import tzinfo
from typing import Any, cast

from django import forms
from django.db.models import QuerySet
from django.utils import timezone

from backendai.accounts.acting import projects_to_act_in
from backendai.accounts.duration_field import TimeSpanField
from backendai.accounts.models import Project, User
from backendai.catalog.models import Image
from backendai.cluster.models import ResourceGroup
from backendai.cluster.session_defaults import HIGHEST_PRIORITY
from backendai.cluster.site import site_settings
from backendai.cluster.slot_types import in_order, look_of
from backendai.compute.models import ComputeSession
from backendai.compute.services.check import LARGEST_CLUSTER
from backendai.compute.services.check_wishes import USUAL_PRIORITY
from backendai.compute.spec import SessionSpec
from backendai.compute.status import ClusterMode, SessionType
from backendai.core.errors import UserError
from backendai.web.launch_choices import ImageField, offer_agents, offer_groups
from backendai.web.presets import preset_choices, typed_amounts
from backendai.web.resources import name_of_slot
from backendai.web.variables import VariablesField, rows_of

CUSTOM = ""
_FIELD_OF = {"type": "session_type", "resources.cpu": "cpu", "resources.mem": "mem", "resources.shm": "mem"}
_NUMBER = {"inputmode": "decimal", "autocomplete": "off"}
_PLAIN_SLOTS = {"cpu", "mem", "shm"}
_IN_ADDRESS = frozenset(
    {"image", "name", "session_type", "project", "resource_group", "preset", "cpu", "mem", "cluster_size"}
)
_ADVANCED = (
    "environ",
    "cluster_size",
    "cluster_mode",
    "priority",
    "agents",
    "starts_at",
    "batch_timeout",
    "retry_on_agent_loss",
    "depends_on",
)
_USUAL = {"cluster_size": "1", "cluster_mode": ClusterMode.SINGLE_NODE}


class LaunchForm(forms.Form):
    """A preset stands for its numbers; custom takes those typed."""

    request_key = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    image = ImageField(Image.objects.none(), to_field_name="name", empty_label=None, widget=forms.RadioSelect)
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
    preset = forms.ChoiceField(required=False)
    cpu = forms.CharField(required=False, initial="1", label="CPU cores", widget=forms.TextInput(attrs=_NUMBER))
    mem = forms.CharField(required=False, initial="1g", label="Memory", help_text="Such as 512m or 4g.")
    environ = VariablesField(required=False, label="Environment variables")
    cluster_size = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST_CLUSTER,
        initial=1,
        label="Kernels",
        help_text="Each is a container with all of the above. They reach each other as main1, sub1, sub2 …",
    )
    cluster_mode = forms.ChoiceField(
        required=False,
        choices=ClusterMode,
        initial=ClusterMode.SINGLE_NODE,
        label="Where they lie",
        help_text="On any agents, a session can be larger than a machine, but its kernels talk over the network.",
    )
    priority = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=HIGHEST_PRIORITY,
        label="Priority",
        widget=forms.NumberInput(attrs={"placeholder": str(USUAL_PRIORITY)}),
        help_text=f"0 to {HIGHEST_PRIORITY}, usually {USUAL_PRIORITY}; the higher starts first.",
    )
    starts_at = forms.DateTimeField(
        required=False,
        label="Start not before",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text="It waits until then, and longer if there is no room.",
    )
    batch_timeout = TimeSpanField(
        required=False,
        label="End it after",
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "such as 30m, 2h, 7d"}),
        help_text="At the latest, from its start. With a known end it may start sooner where the group backfills.",
    )
    retry_on_agent_loss = forms.BooleanField(
        required=False,
        label="Run it again if its node is lost",
        help_text="It waits for another node then, and runs from the start.",
    )
    agents = forms.ChoiceField(required=False, label="Run on", help_text="Else the scheduler chooses.")
    depends_on = forms.ModelMultipleChoiceField(
        ComputeSession.objects.none(), required=False, widget=forms.CheckboxSelectMultiple, label="Start after"
    )
    replaces = forms.ModelChoiceField(
        ComputeSession.objects.none(),
        required=False,
        label="Instead of the one that waits",
    )
    time_zone = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    owner = forms.CharField(max_length=254, required=False, widget=forms.HiddenInput)

    def __init__(
        self, *args: Any, user: User, actor: User | None = None, slots: Collection[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        actor = actor or user
        choices = {
            "image": Image.objects.usable_by(user),
            "project": projects_to_act_in(actor, user),
            "resource_group": ResourceGroup.objects.visible_to(user).filter(is_active=True),
            "depends_on": _batch_sessions(user, actor),
            "replaces": ComputeSession.objects.filter(owner=actor),
        }
        for name, rows in choices.items():
            cast(Any, self.fields[name]).queryset = rows
        self.presets = preset_choices(user)
        cast(Any, self.fields["preset"]).choices = [(CUSTOM, "Custom"), *((one.name, one.name) for one in self.presets)]
        self.accelerators = [slot for slot in in_order(set(slots) - _PLAIN_SLOTS) if look_of(slot).is_enabled]
        for slot in self.accelerators:
            self.fields[f"slot.{slot}"] = forms.CharField(
                required=False, label=name_of_slot(slot), widget=forms.TextInput(attrs=_NUMBER | {"placeholder": "0"})
            )
        self.site = site_settings()
        self.usual_group = offer_groups(self)
        offer_agents(self, wanted=self.site.agent_select)
        self._choose_first_preset()

    def full_clean(self) -> None:
        """Read the start time as the browser's clock shows it."""
        with timezone.override(self._zone()):
            super().full_clean()

    def clean_preset(self) -> str:
        """Refuse amounts of one's own where the site offers presets alone."""
        preset = str(self.cleaned_data["preset"])
        if not preset and not self.site.custom_allocation:
            raise forms.ValidationError("Choose one of these: amounts of your own are not offered here.")
        return preset

    def spec(self) -> SessionSpec:
        """Return the request as the services take it."""
        data = self.cleaned_data
        batch = data["session_type"] == SessionType.BATCH
        return SessionSpec(
            image=data["image"].name,
            name=data["name"].strip(),
            session_type=data["session_type"],
            resources={} if data["preset"] else self._typed(),
            preset=data["preset"],
            resource_group=data["resource_group"].name,
            project=data["project"].pk,
            environ=data["environ"],
            startup_command=data["startup_command"] if batch else "",
            starts_at=data["starts_at"] if batch else None,
            cluster_size=data["cluster_size"] or 1,
            cluster_mode=data["cluster_mode"] or ClusterMode.SINGLE_NODE,
            priority=data["priority"],
            batch_timeout=data["batch_timeout"] if batch else None,
            depends_on=[str(each.pk) for each in data["depends_on"]] if batch else [],
            retry_on_agent_loss=data["retry_on_agent_loss"] and batch,
            agents=[data["agents"]] if data.get("agents") else [],
            owner=data["owner"],
        )

    def refuse(self, error: UserError) -> None:
        """Show a refusal at the field it names, else on top."""
        self.add_error(self._field_of(error), error.message)

    def refusal(self, error: UserError) -> str:
        """Return a refusal with the label of the field it names, where its own words do not say which."""
        name = self._field_of(error)
        label = self.fields[name].label if name else ""
        names = {str(label).lower(), str(name).removeprefix("slot.")}
        said = not label or any(each in error.message.lower() for each in names)
        return error.message if said else f"{label}: {error.message}"

    def first_wrong(self) -> str:
        """Return what is wrong with the first wrong field, with its name."""
        name, errors = next(iter(self.errors.items()))
        label = self.fields[name].label if name in self.fields else ""
        title = str(label or name.removeprefix("slot.").replace("_", " ").capitalize())
        return f"{title}: {cast(Sequence[str], errors)[0]}"

    def accelerator_fields(self) -> list[forms.BoundField]:
        """Return the fields of accelerators that the groups offer."""
        return [self[f"slot.{slot}"] for slot in self.accelerators]

    def variable_rows(self) -> list[tuple[str, str]]:
        """Return the environment variables so far, and empty rows."""
        return rows_of(self["environ"].value())

    def is_advanced_open(self) -> bool:
        """Return whether something under "Advanced" has been changed or refused."""
        advanced = [name for name in _ADVANCED if name in self.fields]
        values = {name: self[name].value() for name in advanced}
        changed = any(value and str(value) != _USUAL.get(name) for name, value in values.items())
        return changed or any(self[name].errors for name in advanced)

    def place(self) -> tuple[str, str]:
        """Return the project (its id) and the group (its name) in which the form stands now."""

        def shown(name: str, first: str) -> str:
            rows = cast(Any, self.fields[name]).queryset
            return str(self[name].value() or rows.values_list(first, flat=True).first() or "")

        group = self["resource_group"].value() or (self.usual_group.name if self.usual_group else "")
        return shown("project", "pk"), str(group)

    def _field_of(self, error: UserError) -> str | None:
        name = _FIELD_OF.get(error.field or "", error.field or "")
        if name.startswith("resources."):
            name = "slot." + name.removeprefix("resources.")
        if self.cleaned_data.get("preset") and (name in ("cpu", "mem") or name.startswith("slot.")):
            name = "preset"
        return name if name in self.fields else None

    def _choose_first_preset(self) -> None:
        if self.is_bound or "preset" in self.initial:
            return
        group = self.initial.get("resource_group") or (self.usual_group.name if self.usual_group else "")
        for choice in self.presets if group else ():
            if slots := choice.slots_in(group):
                self.initial.update({"preset": choice.name, **initial_amounts(typed_amounts(slots))})
                return

    def _zone(self) -> tzinfo:
        try:
            return zoneinfo.ZoneInfo(self.data.get("time_zone") or "")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return timezone.get_default_timezone()

    def _typed(self) -> dict[str, str]:
        names = {"cpu": "cpu", "mem": "mem"} | {slot: f"slot.{slot}" for slot in self.accelerators}
        return {slot: value for slot, field in names.items() if (value := self.cleaned_data[field].strip())}


def _batch_sessions(user: User, actor: User) -> QuerySet[ComputeSession]:
    own = ComputeSession.objects.visible_to(actor).filter(owner=user)
    return own.filter(session_type=SessionType.BATCH).live()


def named_in(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a launch address names of the form's fields: a link can open it filled. Commands and variables
    come from nobody's link."""
    named = {name: value for name, value in asked.items() if name in _IN_ADDRESS or name.startswith("slot.")}
    if any(name in ("cpu", "mem") or name.startswith("slot.") for name in named):
        named.setdefault("preset", CUSTOM)
    return named


def initial_amounts(amounts: dict[str, str]) -> dict[str, str]:
    """Return what the form's fields show at first for these amounts, as somebody would type them."""
    return {slot if slot in _PLAIN_SLOTS else f"slot.{slot}": text for slot, text in amounts.items()}
