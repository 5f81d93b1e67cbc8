"""Fields of the allocation: project, resource group, and amounts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from django import forms

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.texts.messages import in_words_lazy
from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.site import site_settings
from backendai.domain.cluster.slot_types import in_order, look_of
from backendai.domain.compute.services.launching.create import MOST_AT_ONCE
from backendai.domain.compute.services.requests.amounts import minimum_of
from backendai.domain.compute.services.requests.check import LARGEST_CLUSTER
from backendai.domain.compute.services.requests.limits import groups_open, projects_open
from backendai.domain.compute.services.requests.roles import MAIN
from backendai.domain.compute.status import ClusterMode
from backendai.portal.web.dashboard.resources import name_of_slot
from backendai.portal.web.launch.fields.allocation_checks import wrong_amounts
from backendai.portal.web.launch.fields.choices import RowsField, offer_agents, offer_groups
from backendai.portal.web.launch.fields.presets import is_number, preset_choices, split_size, typed_amounts

CUSTOM = ""
MINIMUM = "=minimum"  # no preset can have this name
UNITS = (("", "bytes"), ("m", "MiB"), ("g", "GiB"), ("t", "TiB"))  # what says no unit means bytes
_NUMBER = {"inputmode": "decimal", "autocomplete": "off"}
_PLAIN_SLOTS = {"cpu", "mem", "shm"}
_NO_PROJECT = _("None is available to launch in: ask an administrator to add people to projects.")


class AllocationFields(forms.Form):
    """The fields of project, group and amounts. A preset gives its amounts; *custom* takes the typed ones."""

    project = RowsField(Project.objects.none(), empty_label=None, label=_("Project"))
    resource_group = RowsField(
        ResourceGroup.objects.none(), to_field_name="name", empty_label=None, label=_("Resource group")
    )
    preset = forms.ChoiceField(required=False, label=_("Size"))
    cpu = forms.CharField(required=False, initial="1", label=_("CPU cores"), widget=forms.TextInput(attrs=_NUMBER))
    mem = forms.CharField(required=False, initial="1", label=_("Memory"), help_text=_("For example 512m or 4g."))
    mem_unit = forms.ChoiceField(required=False, choices=UNITS, initial="g", label=_("Unit of the memory"))
    shm = forms.CharField(
        required=False, label=_("Shared memory"), help_text=_("Part of the memory. Leave empty for the default.")
    )
    shm_unit = forms.ChoiceField(required=False, choices=UNITS, initial="g", label=_("Unit of the shared memory"))
    count = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_AT_ONCE,
        initial=1,
        label=_("Sessions"),
        help_text=_("Number of identical sessions. Those that do not fit are queued."),
        error_messages={
            "invalid": _("Enter a whole number of sessions, such as 2."),
            "min_value": _("At least 1 session."),
            "max_value": _("At most %(limit_value)s sessions at once."),
        },
    )
    cluster_size = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST_CLUSTER,
        initial=1,
        label=_("Kernels"),
        error_messages={
            "invalid": _("Enter a whole number of kernels, such as 2."),
            "min_value": _("At least 1 kernel."),
            "max_value": _("At most %(limit_value)s kernels in one session."),
        },
        help_text=_("Each has all of the above. They reach each other as main1, sub1, sub2 …"),
    )
    cluster_mode = forms.ChoiceField(
        required=False,
        choices=[(one.value, in_words_lazy(one.label)) for one in ClusterMode],
        initial=ClusterMode.SINGLE_NODE,
        label=_("Cluster placement"),
        help_text=_(
            "On any agents, a session can be larger than one agent, but its kernels communicate over the network."
        ),
    )
    command_in = forms.ChoiceField(
        required=False,
        choices=[("", _("every kernel")), (MAIN, _("only the main kernel, when the others run"))],
        label=_("Command runs in"),
        help_text=_("Every kernel is right for torchrun; only the main one is right for mpirun and ssh."),
    )
    agents = forms.ChoiceField(
        required=False, label=_("Agent"), help_text=_("Leave empty to let the scheduler choose.")
    )

    def offer_places(self, user: User, actor: User, slots: Collection[str]) -> None:
        """Offer the projects and groups open to this user, and the accelerators among these slots."""
        self.owner_of_amounts = user
        cast(Any, self.fields["project"]).offer(projects_open(user, actor))
        if not cast(Any, self.fields["project"]).rows:
            self.fields["project"].error_messages["required"] = _NO_PROJECT
        cast(Any, self.fields["resource_group"]).offer(groups_open(user))
        self.presets = preset_choices(user)
        names = [CUSTOM, MINIMUM, *(one.name for one in self.presets)]
        cast(Any, self.fields["preset"]).choices = [(name, name) for name in names]
        self.accelerators = [slot for slot in in_order(set(slots) - _PLAIN_SLOTS) if look_of(slot).is_enabled]
        for slot in self.accelerators:
            self.fields[f"slot.{slot}"] = forms.CharField(
                required=False, label=name_of_slot(slot), widget=forms.TextInput(attrs=_NUMBER | {"placeholder": "0"})
            )
        self.site = site_settings()
        self.usual_group = offer_groups(self)
        offer_agents(self, wanted=self.site.agent_select)
        self._choose_first_preset()

    def clean_preset(self) -> str:
        """Return the preset. Raises ValidationError for custom amounts if the site allows only presets."""
        preset = str(self.cleaned_data["preset"])
        if not preset and not self.site.custom_allocation:
            raise forms.ValidationError(_("Choose one of these: custom amounts are not allowed here."))
        return preset

    def clean(self) -> dict[str, Any] | None:
        """Add an error to each amount with which no session could ever start. The services check the rest."""
        data = super().clean()
        for name, text in wrong_amounts(self, self.owner_of_amounts):
            self.add_error(name if name in self.fields else None, text)
        return data

    def preset_asked(self) -> str:
        """Return the name of the preset to launch with; empty for custom or minimum amounts."""
        preset = str(self.cleaned_data["preset"])
        return "" if preset == MINIMUM else preset

    def amounts_asked(self) -> dict[str, str]:
        """Return the amounts to launch with, by slot; empty if a preset gives them."""
        if self.cleaned_data["preset"] == MINIMUM:
            return minimum_of(self.cleaned_data["image"]).to_json()
        return {} if self.cleaned_data["preset"] else self.own_amounts()

    def readable_amounts(self) -> Slots | None:
        """Return the entered amounts of each kernel, valid or not; None if they cannot be parsed."""
        preset = str(self["preset"].value() or "")
        if preset not in (CUSTOM, MINIMUM):
            group = self.place()[1]
            return next((one.slots_in(group) for one in self.presets if one.name == preset), None)
        try:
            return Slots.parse(self.amounts_asked())
        except (UserError, ValueError, KeyError):
            return None

    def own_amounts(self) -> dict[str, str]:
        """Return the typed amounts by slot."""
        names = {"cpu": "cpu", "mem": "mem"} | {slot: f"slot.{slot}" for slot in self.accelerators}
        return {slot: value for slot, field in names.items() if (value := self.typed(field))}

    def typed(self, name: str) -> str:
        """Return the current text of an amount's field; a plain number gets the unit beside it."""
        text = str(self[name].value() or "").strip()
        unit = str(self[f"{name}_unit"].value() or "") if f"{name}_unit" in self.fields else ""
        return text + unit if is_number(text) and unit in dict(UNITS) else text

    def accelerator_fields(self) -> list[forms.BoundField]:
        """Return the fields of the accelerators that the groups offer."""
        return [self[f"slot.{slot}"] for slot in self.accelerators]

    def place(self) -> tuple[str, str]:
        """Return the current project (its id) and group (its name) of the form."""
        first = next((project.pk for project in cast(Any, self.fields["project"]).rows), "")
        group = self["resource_group"].value() or (self.usual_group.name if self.usual_group else "")
        return str(self["project"].value() or first), str(group)

    def _choose_first_preset(self) -> None:
        if self.is_bound or "preset" in self.initial:
            return
        group = self.initial.get("resource_group") or (self.usual_group.name if self.usual_group else "")
        for choice in self.presets if group else ():
            if slots := choice.slots_in(group):
                self.initial.update({"preset": choice.name, **initial_amounts(typed_amounts(slots))})
                return


def initial_amounts(amounts: dict[str, str]) -> dict[str, str]:
    """Return the initial values of the form's fields for these amounts, in the notation of people."""
    shown = {slot if slot in _PLAIN_SLOTS else f"slot.{slot}": text for slot, text in amounts.items()}
    for name in ("mem", "shm"):
        if name in shown:
            shown[name], shown[f"{name}_unit"] = split_size(shown[name])
    return shown
