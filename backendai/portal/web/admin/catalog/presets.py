"""Pages of resource presets."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import django_tables2 as tables
from django import forms
from django.db.models import QuerySet
from django.utils.functional import cached_property
from django.utils.html import format_html

from backendai.base.core.slots import Slots, format_size
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.policies.amounts_field import AmountsField, SizeField
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.presets import delete_preset, write_preset
from backendai.domain.cluster.models import Agent
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelTable
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.templatetags.portal import amounts


class Machines:
    """The capacities of all agents that are not removed, read in one query."""

    def __init__(self) -> None:
        rows = Agent.objects.exclude(status=Agent.Status.TERMINATED).values_list("resource_group", "capacity")
        alike = Counter((group, tuple(sorted(capacity.items()))) for group, capacity in rows)
        self._kinds = [(group, Slots.parse(dict(capacity)), number) for (group, capacity), number in alike.items()]

    def that_hold(self, preset: ResourcePreset) -> int:
        """Return how many empty agents of the preset's group (or of all) are large enough for the preset."""
        wanted, group_id = preset.amounts, preset.resource_group_id
        return sum(
            number for group, capacity, number in self._kinds if group_id in (None, group) and wanted.fits(capacity)
        )


class PresetTable(PanelTable):
    """A table with one row for each preset."""

    name = tables.LinkColumn("manage:preset", args=[tables.A("pk")])
    resource_group = tables.Column(_l("Resource group"), default=_l("all groups"))
    slots = tables.Column(_l("Amounts"), orderable=False)
    shm_bytes = tables.Column(_l("Shared memory"), default=_l("default"))
    fits = tables.Column(_l("Fits on"), empty_values=(), orderable=False)
    rank = NumberColumn(_l("Order"))

    class Meta(PanelTable.Meta):
        model = ResourcePreset
        order_by = ("rank", "name")

    @cached_property
    def _machines(self) -> Machines:
        return Machines()

    def render_fits(self, record: ResourcePreset) -> str:
        """Return the number of agents that are large enough when empty."""
        number = self._machines.that_hold(record)
        if not number:
            return format_html('<span class="status tone-bad">{}</span>', _("no agent"))
        return ngettext("%(number)s agent", "%(number)s agents", number) % {"number": number}

    def value_fits(self, record: ResourcePreset) -> int:
        return self._machines.that_hold(record)

    def render_slots(self, value: Any) -> str:
        return amounts(value)

    def render_shm_bytes(self, value: int) -> str:
        return format_size(value)


class PresetForm(EditForm):
    """The form of a preset; its amounts are those of each kernel."""

    slots = AmountsField(
        label=_l("Amounts"), help_text=_l("What each kernel gets, such as cpu=2, mem=4g, cuda.device=1.")
    )
    shm_bytes = SizeField(
        label=_l("Shared memory"),
        help_text=_l("For example 256m or 2g; less than the memory. Empty: default."),
    )
    rank = forms.IntegerField(
        label=_l("Order"), initial=0, min_value=0, help_text=_l("Lower numbers come first; ties are sorted by name.")
    )

    words_for_none: ClassVar[dict[str, Any]] = {"resource_group": _l("all groups")}
    shown_at: ClassVar[dict[str, str]] = {"resources": "slots"}

    class Meta:
        model = ResourcePreset
        fields: ClassVar[list[str]] = ["name", "resource_group", "slots", "shm_bytes", "rank"]
        help_texts: ClassVar[dict[str, Any]] = {
            "resource_group": _l("A preset of a group takes precedence over one of the same name for all groups."),
        }


class Presets(ObjectPages):
    """Resource presets, for superadmins."""

    section = "presets"
    name = "preset"
    model = ResourcePreset
    title = _l("Presets")
    icon = "adjustments"
    guide = "presets"
    lead = _l("named amounts that users choose instead of numbers")
    table_class = PresetTable
    search_fields = ("name", "resource_group__name")
    search_hint = _l("Name or group")
    filter_fields = ("resource_group",)
    form_class = PresetForm
    new_label = _l("New preset")
    save_label = _l("Save preset")
    saved_text = _l("Preset %(saved)s is saved.")
    delete_label = _l("Delete preset")

    def rows(self) -> QuerySet[ResourcePreset]:
        """Return the presets with their groups."""
        return ResourcePreset.objects.select_related("resource_group")

    def save(self, form: EditForm) -> Any:
        """Save the preset by the service, with its checks and audit entry."""
        return write_preset(self.viewer.pk, self.find() or ResourcePreset(), form.values())

    def notes(self, saved: Any) -> list[str]:
        """Return why no session could start with the preset: amounts that no agent has."""
        if Machines().that_hold(saved):
            return []
        if saved.resource_group:
            group = saved.resource_group
            return [_("No agent of resource group %(group)s can hold this preset, even when empty.") % {"group": group}]
        return [_("No agent can hold this preset, even when empty.")]

    def consequences(self) -> list[str]:
        return [_("Sessions that were made of it keep their amounts.")]

    def delete(self) -> None:
        delete_preset(self.viewer.pk, self.object)
