"""The form of an idle checker: its rule, its warning, and where it applies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.cluster.idle.checkers import Places, places_of
from backendai.domain.cluster.models import IdleChecker, ResourceGroup
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.frame.kind_words import word_of
from backendai.scheduler.idle_kinds import IDLE_KINDS


class PercentagesField(forms.CharField):
    """A field for slots with percentages in one line: ``cuda.device=5, cpu=1``. Its value maps slots to numbers."""

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        if not isinstance(value, Mapping):
            return value
        return ", ".join(f"{slot}={percent:g}" for slot, percent in sorted(value.items()))

    def to_python(self, value: Any) -> dict[str, float]:  # type: ignore[override]
        """Return the percentages by slot. Raises ValidationError that quotes the invalid part."""
        found: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in str(value or "").replace("\n", ",").split(","))):
            slot, _sign, percent = (piece.strip() for piece in part.partition("="))
            try:
                found[slot] = float(percent.removesuffix("%"))
            except ValueError:
                text = _("%(part)s: write a slot and a percentage, such as cuda.device=5.") % {"part": part[:60]}
                raise ValidationError(text) from None
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the typed percentages differ from the initial ones; their notation does not matter."""
        try:
            return self.to_python(data) != (initial or {})
        except ValidationError:
            return True


_PLACES = {  # the names of fields → of ``Places``
    "is_site_wide": "is_site_wide",
    "in_groups": "groups",
    "in_projects": "projects",
    "except_groups": "except_groups",
    "except_projects": "except_projects",
}


class CheckerForm(EditForm):
    """The form of an idle checker, with the places where it applies."""

    limit = TimeSpanField(label=_l("After"), help_text=_l("How long before it counts."))
    grace = TimeSpanField(
        label=_l("Grace period"),
        help_text=_l("Sessions younger than this are never ended by this checker. 0: no minimum."),
    )
    thresholds = PercentagesField(
        required=False,
        label=_l("Idle below"),
        widget=forms.TextInput(attrs={"size": 40, "placeholder": "cuda.device=5, cpu=1"}),
        help_text=Message.joined(
            [
                Message("Utilization thresholds in percent, averaged over the time above."),
                *(kind.about_thresholds for kind in IDLE_KINDS.values()),
            ]
        ),
    )
    warning = TimeSpanField(
        label=_l("Warning period"),
        help_text=_l(
            "How long before the end the owner is warned. At most half of the time above (except for a utilization "
            "checker)."
        ),
    )
    extension = TimeSpanField(label=_l("Extension length"), help_text=_l("How much longer a warned session may run."))
    session_types = forms.MultipleChoiceField(
        label=_l("Session types"),
        choices=[(name, word_of(name)) for name in kinds_with("is_checked")],
        widget=forms.CheckboxSelectMultiple,
        help_text=_l("Batch sessions usually have no traffic; include them only if you really want them ended."),
    )
    is_site_wide = forms.BooleanField(
        required=False,
        label=_l("The whole site"),
        help_text=_l("Everywhere, except where a checker of the same kind is set for a group or project."),
    )
    in_groups = forms.ModelMultipleChoiceField(
        ResourceGroup.objects.all(), required=False, label=_l("In resource groups")
    )
    in_projects = forms.ModelMultipleChoiceField(
        Project.objects.order_by("name", "pk"), required=False, label=_l("In projects")
    )
    except_groups = forms.ModelMultipleChoiceField(
        ResourceGroup.objects.all(), required=False, label=_l("Not in resource groups")
    )
    except_projects = forms.ModelMultipleChoiceField(
        Project.objects.order_by("name", "pk"), required=False, label=_l("Not in projects")
    )

    groups = (
        (_l("Idle condition"), ("kind", "limit", "thresholds", "match", "grace", "session_types")),
        (_l("Warning, extensions and end"), ("warning", "extension", "max_extensions", "at_end")),
        (_l("Where it applies"), tuple(_PLACES)),
    )

    class Meta:
        model = IdleChecker
        fields: ClassVar[list[str]] = [
            "name", "description", "is_active", "kind", "limit", "thresholds", "match", "grace", "session_types",
            "warning", "extension", "max_extensions", "at_end",
        ]  # fmt: skip
        labels: ClassVar[dict[str, Any]] = {
            "is_active": _l("Active"),
            "kind": _l("Kind"),
            "match": _l("Idle when"),
            "max_extensions": _l("Maximum extensions"),
            "at_end": _l("At the end"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance.pk:  # fields that are written out here do not know what is usual
            usual = {name: getattr(self.instance, name) for name in self.Meta.fields}
            self.initial = {**usual, **self.initial}
        if self.instance.pk:
            places = places_of(self.instance)
            self.initial.update({field: getattr(places, name) for field, name in _PLACES.items()})

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error to an active idle checker that applies nowhere."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        somewhere = any(cleaned.get(name) for name in ("is_site_wide", "in_groups", "in_projects"))
        if cleaned.get("is_active") and not somewhere:
            text = _("Choose where the checker applies: the whole site, or at least one resource group or project.")
            self.add_error("is_site_wide", text)
        return cleaned

    def places(self) -> Places:
        """Return the places where the idle checker of a valid form applies."""
        return Places(**{name: self.cleaned_data[field] for field, name in _PLACES.items()})
