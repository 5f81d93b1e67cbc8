"""Pages of slot types."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.core.slots import MILLI, decimal_text, parse_amount
from backendai.domain.cluster.models import SlotType
from backendai.domain.cluster.slot_types import change_slot_type
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelTable, YesNoColumn
from backendai.portal.web.admin.objects import ObjectPages


class SlotTypeTable(PanelTable):
    """A table with one row for each slot type."""

    name = tables.LinkColumn("manage:slot-type", args=[tables.A("pk")], verbose_name=_l("Slot"))
    display_name = tables.Column(_l("Shown as"))
    kind = tables.Column(_l("Counted as"))
    unit = tables.Column(_l("Unit"), default="–")
    step = NumberColumn(_l("Smallest step"), accessor="quantum")
    rank = NumberColumn(_l("Order"))
    is_enabled = YesNoColumn(_l("Offered"))
    offered_by = tables.Column(_l("Waits for approval, from agent"), default="–")

    class Meta(PanelTable.Meta):
        model = SlotType
        order_by = "rank"

    def render_step(self, value: int) -> str:
        """Return the step in the slot's unit."""
        return decimal_text(value)


class SlotTypeForm(EditForm):
    """The display of a slot type, and the steps in which it is allocated."""

    step = forms.CharField(
        label=_l("Smallest step"),
        help_text=_l("In the slot's unit: 0.01, 0.5, 1. Launches that request other amounts fail."),
    )

    class Meta:
        model = SlotType
        fields: ClassVar[list[str]] = ["display_name", "description", "kind", "unit", "rank", "is_enabled"]
        labels: ClassVar[dict[str, Any]] = {
            "display_name": _l("Shown as"),
            "kind": _l("Counted as"),
            "is_enabled": _l("Offered"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "is_enabled": _l("If off, it cannot be requested; existing allocations are kept."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["step"] = self.instance.step

    def clean_step(self) -> int:
        """Return the step in thousandths. Raises ValidationError."""
        try:
            return parse_amount("step", self.cleaned_data["step"], field="step")
        except UserError as error:
            raise forms.ValidationError(error.message) from None

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error to a fractional step of bytes or whole devices."""
        said = super().clean()
        self.instance.quantum = MILLI  # judged here, where the field is; the verb writes it
        step = said.get("step")
        if step is not None and (step < 1 or (said.get("kind") != SlotType.Kind.COUNT and step % MILLI)):
            self.add_error(
                "step", _("Bytes and whole devices are counted in whole numbers.") if step else _("Enter more than 0.")
            )
        return said


class SlotTypes(ObjectPages):
    """Slot types, for superadmins. Agents report them."""

    section = "slot-types"
    name = "slot-type"
    model = SlotType
    title = _l("Slot types")
    icon = "cpu"
    guide = "slot-types"
    lead = _l("the kinds of resources; a new one reported by an agent waits here until you enable it")
    table_class = SlotTypeTable
    search_fields = ("name", "display_name")
    search_hint = _l("Name")
    filter_fields = ("kind", "is_enabled")
    form_class = SlotTypeForm
    save_label = _l("Save slot type")

    def rows(self) -> QuerySet[SlotType]:
        """Return all slot types."""
        return SlotType.objects.select_related("offered_by")

    def save(self, form: EditForm) -> Any:
        """Save the slot type by the service, with its checks and audit entry."""
        return change_slot_type(self.viewer, self.find(), form.values() | {"quantum": form.cleaned_data["step"]})
