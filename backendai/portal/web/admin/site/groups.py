"""Pages of resource groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.db.models import Count, Model, Q, QuerySet

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import KeyPair
from backendai.domain.accounts.policies.duration_field import TimeSpanField, short_duration
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.cluster.groups.changes import change_group, create_group, delete_group, uses_of_group
from backendai.domain.cluster.groups.form import GroupForm
from backendai.domain.cluster.groups.rules import SEQUENCE, strategies
from backendai.domain.cluster.groups.session_defaults import LONGEST_RUN, parse_session_defaults
from backendai.domain.cluster.idle.checkers import checkers_of, choose_checkers
from backendai.domain.cluster.models import Agent, IdleChecker, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.admin.editing import DeleteUnlessUsed
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelFilter, PanelTable, YesNoColumn
from backendai.portal.web.admin.objects import ObjectPages

_TIMES = (
    "overtaking_limit", "usage_half_life", "pending_timeout", "pull_timeout", "create_timeout", "terminate_timeout",
    "agent_lost_grace", "preempt_after",
)  # fmt: skip
_COLUMNS = frozenset(field.name for field in (*ResourceGroup._meta.fields, *ResourceGroup._meta.many_to_many))


class GroupTable(PanelTable):
    """A table with one row for each resource group."""

    name = tables.LinkColumn("manage:group", args=[tables.A("pk")], verbose_name=_l("Resource group"))
    is_active = YesNoColumn(_l("Accepts sessions"))
    is_default = YesNoColumn(_l("Default"))
    is_public = tables.Column(_l("Open to"))
    sequence = tables.Column(_l("Sequence"))
    selection = tables.Column(_l("Selection"))
    agents_alive = NumberColumn(_l("Agents alive"))
    pending_timeout = tables.Column(_l("Maximum queue time"))

    class Meta(PanelTable.Meta):
        model = ResourceGroup
        order_by = "name"

    def render_is_public(self, value: bool) -> str:
        """Return as text who may use the group."""
        return _("everyone") if value else _("those it names")

    def render_agents_alive(self, value: int, record: Any) -> str:
        """Return the number of reachable agents, and of all agents."""
        return _("%(value)s of %(agent_count)s") % {"value": value, "agent_count": record.agent_count}

    def render_pending_timeout(self, value: Any) -> str:
        """Return the longest wait of a session in the group as text."""
        return short_duration(value) if value else "∞"


class GroupFilter(PanelFilter):
    """Filters resource groups by name and state."""

    search_fields = ("name", "description")
    search_hint = _l("Name or description")

    sequence = django_filters.ChoiceFilter(
        label=_l("Sequence"), empty_label=_l("any"), choices=lambda: [(name, name) for name in strategies(SEQUENCE)]
    )

    class Meta:
        model = ResourceGroup
        fields: ClassVar[list[str]] = ["is_active", "is_public"]


class PanelGroupForm(GroupForm, EditForm):
    """All settings of a resource group, with a field for each default of sessions."""

    groups = (
        (_l("Open to"), ("is_public", "domains", "projects", "key_pairs")),
        (
            _l("Session defaults"),
            ("default_priority", "default_batch_timeout", "default_shm", "default_environ"),
        ),
        (
            _l("Queueing"),
            ("sequence", "usage_half_life", "retries_to_skip", "overtaking_limit", "backfill", "preempt_after"),
        ),
        (
            _l("Agent selection"),
            ("selection", "slot_order", "max_kernels_per_agent", "device_allocation", "allow_fragmentation"),
        ),
        (_l("Queue limits"), ("pending_timeout", "give_up_after", "on_give_up")),
        (
            _l("Start and termination timeouts"),
            ("pull_timeout", "create_timeout", "terminate_timeout", "max_retries", "agent_lost_grace"),
        ),
        (_l("Idle sessions"), ("idle_checkers",)),
        (_l("Apps of sessions"), ("app_domain",)),
    )

    default_priority = forms.IntegerField(
        required=False, min_value=0, max_value=100, label=_l("Priority"), help_text=_l("0 to 100. Empty: 10.")
    )
    default_batch_timeout = TimeSpanField(
        required=False, label=_l("End batch sessions after"), help_text=_l("Empty: no limit.")
    )
    default_shm = forms.CharField(
        required=False,
        label=_l("Shared memory"),
        help_text=_l("For example 256m; at most half of the memory. Empty: default."),
    )
    default_environ = forms.CharField(
        required=False,
        label=_l("Environment variables"),
        help_text=_l(
            "One NAME=value per line. Values set at launch take precedence. Do not store secrets here: "
            "every user of the group can see them."
        ),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )

    idle_checkers = forms.ModelMultipleChoiceField(
        IdleChecker.objects.none(),
        required=False,
        label=_l("Idle checkers of this group"),
        help_text=_l("Overrides the site-wide checkers of the same kind. Empty: use the site-wide checkers."),
    )

    class Meta(GroupForm.Meta):
        exclude: ClassVar[list[str]] = ["session_defaults", "created_at"]
        fields = None  # type: ignore[assignment]  # all but those left out
        field_classes: ClassVar[dict[str, Any]] = dict.fromkeys(_TIMES, TimeSpanField)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        usual: dict[str, Any] = self.instance.session_defaults
        values = {
            "default_priority": usual.get("priority"),
            "default_batch_timeout": usual.get("batch_timeout") and f"{usual['batch_timeout']:g}s",
            "default_shm": usual.get("shm", ""),
            "default_environ": "\n".join(f"{name}={value}" for name, value in usual.get("environ", {}).items()),
        }
        self.initial.update(values)
        key_pairs: Any = self.fields["key_pairs"]
        key_pairs.queryset = KeyPair.objects.select_related("user").order_by("user__email", "access_key")
        key_pairs.label_from_instance = lambda pair: f"{pair.user.email} · {pair.access_key}"
        self.fields["idle_checkers"].queryset = IdleChecker.objects.all()  # type: ignore[attr-defined]
        if self.instance.pk:
            self.initial["idle_checkers"] = checkers_of(self.instance)

    def clean_default_batch_timeout(self) -> timedelta | None:
        """Return the default time limit of batch sessions. Raises ValidationError if it is out of range."""
        said: timedelta | None = self.cleaned_data["default_batch_timeout"]
        if said is not None and not timedelta(0) < said <= LONGEST_RUN:
            text = f"Write a time longer than 0 and of at most {LONGEST_RUN.days} days, or leave it empty."
            raise forms.ValidationError(in_words(text))
        return said

    def clean_default_shm(self) -> str:
        """Return the default shared memory as typed. Raises ValidationError if it is invalid."""
        said: str = self.cleaned_data["default_shm"].strip()
        _check_default("shm", said)
        return said

    def clean_default_environ(self) -> dict[str, str]:
        """Return the default environment variables. Raises ValidationError for invalid lines."""
        lines = [line.strip() for line in self.cleaned_data["default_environ"].splitlines() if line.strip()]
        if wrong := next((line for line in lines if "=" not in line), None):
            raise forms.ValidationError(f"{wrong[:60]!r} has no =: write NAME=value.")
        said = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
        _check_default("environ", said)
        return said

    def clean(self) -> dict[str, Any]:
        """Combine the defaults into ``session_defaults``, which the model then validates."""
        said = self.cleaned_data
        timeout = said.get("default_batch_timeout")
        defaults = {
            "priority": said.get("default_priority"),
            "batch_timeout": timeout.total_seconds() if timeout is not None else None,
            "shm": (said.get("default_shm") or "").strip() or None,
            "environ": said.get("default_environ") or None,
        }
        self.instance.session_defaults = {name: value for name, value in defaults.items() if value is not None}
        return super().clean()

    def add_error(self, field: str | None, error: Any) -> None:
        """Add the error; one of ``session_defaults`` is shown above the form, as its text names the default."""
        by_field = getattr(error, "error_dict", {})
        if wrong := by_field.pop("session_defaults", None):
            by_field.setdefault("__all__", []).extend(wrong)
        super().add_error(field, error)


def _check_default(name: str, value: Any) -> None:
    """Raise ValidationError if this default of sessions is invalid, so that its own field shows the error."""
    try:
        parse_session_defaults({name: value}, typed=True)
    except UserError as error:
        raise forms.ValidationError(in_words(error.message)) from error


class Groups(ObjectPages):
    """Resource groups, for superadmins."""

    section = "groups"
    name = "group"
    model = ResourceGroup
    title = _l("Resource groups")
    icon = "stack-2"
    guide = "resource-groups"
    lead = _l("sets of agents with one queue each")
    table_class = GroupTable
    filterset_class = GroupFilter
    form_class = PanelGroupForm
    form_lead = _l("Changes take effect within two seconds; running sessions are not affected.")
    new_label = _l("New resource group")
    save_label = _l("Save group")
    saved_text = _l("Resource group %(saved)s is saved; the next scheduler pass uses it.")
    delete_label = _l("Delete group")
    delete_page = DeleteUnlessUsed
    deleted_text = _l("Resource group %(name)s is deleted.")
    filters: ClassVar[dict[Any, tuple[str, str]]] = {
        Agent: ("resource_group", "pk"),
        ResourcePreset: ("resource_group", "pk"),
        ComputeSession: ("group", "name"),
    }

    def rows(self) -> QuerySet[ResourceGroup]:
        """Return the groups with the number of their agents."""
        return ResourceGroup.objects.annotate(
            agents_alive=Count("agents", filter=Q(agents__status=Agent.Status.ALIVE)),
            agent_count=Count("agents", filter=~Q(agents__status=Agent.Status.TERMINATED)),
        )

    def save(self, form: EditForm) -> Any:
        """Save the group by the services, with their checks and audit entries."""
        values = {name: value for name, value in form.cleaned_data.items() if name in _COLUMNS}
        values["session_defaults"] = form.instance.session_defaults
        stored = self.find()
        group = create_group(self.viewer, values) if stored is None else change_group(self.viewer, stored, values)
        choose_checkers(self.viewer.pk, group, form.cleaned_data["idle_checkers"])
        return group

    def consequences(self) -> list[str]:
        return [_("Its join tokens are deleted too.")]

    def counted(self) -> dict[type[Model], int]:
        """Return how many agents, sessions and presets belong to the group."""
        return uses_of_group(self.object)

    def deactivate(self) -> None:
        change_group(self.viewer, self.object, {"is_active": False})

    def delete(self) -> None:
        delete_group(self.viewer.pk, self.object)
