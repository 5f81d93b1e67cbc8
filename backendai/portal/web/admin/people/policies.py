"""Pages of resource policies."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise

from backendai.base.core.errors import UserError
from backendai.base.core.slots import INFINITY
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import Domain, KeyPair, PolicyDefault, Project, ResourcePolicy, User
from backendai.domain.accounts.policies.applicable import HOLDER_WORDS, held_text, holders_text
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.domain.accounts.policies.form import PolicyForm
from backendai.domain.accounts.services.policies import delete_policy
from backendai.domain.cluster.slot_types import check_known
from backendai.portal.web.admin.editing import DeleteUnlessUsed, References
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelFilter, PanelTable, YesNo
from backendai.portal.web.admin.objects import ObjectPages

_MOST_NAMED = 20
_KINDS: tuple[tuple[str | Promise, Any, str], ...] = (
    ("Users", User, "email"),
    ("Projects", Project, "name"),
    ("Domains", Domain, "name"),
    (_l("Key pairs"), KeyPair, "access_key"),
)


class PolicyTable(PanelTable):
    """A table with one row for each policy; ∞ means no limit."""

    name = tables.LinkColumn("manage:policy", args=[tables.A("pk")])
    slots = tables.Column(_l("Concurrent use limit"), orderable=False, empty_values=())
    max_sessions = NumberColumn(_l("Sessions"), default=INFINITY)
    max_pending_sessions = NumberColumn(_l("Waiting"), default=INFINITY)
    max_priority = NumberColumn(_l("Priority"), default=INFINITY)
    max_session_lifetime = tables.Column(_l("Maximum lifetime"), default=INFINITY)
    holders = tables.Column(_l("Assigned to"), orderable=False, empty_values=())

    class Meta(PanelTable.Meta):
        model = ResourcePolicy
        order_by = "name"

    def render_slots(self, record: ResourcePolicy) -> str:
        """Return the limits of slots as text."""
        return held_text(record)

    def render_max_session_lifetime(self, value: Any) -> str:
        return short_duration(value)

    def render_holders(self, record: Any) -> str:
        """Return as text who has the policy, and which new holders get it."""
        new = [in_words(default.get_holder_display()) for default in record.default_for.all()]
        return in_words(holders_text(record)) + (_("; new %(names)s") % {"names": ", ".join(new)} if new else "")


class PolicyFilter(PanelFilter):
    """Filters policies by name, and whether they have holders."""

    search_fields = ("name",)
    search_hint = _l("Name")

    in_use = django_filters.BooleanFilter(method="filter_use", label=_l("In use"), widget=YesNo)

    class Meta:
        model = ResourcePolicy
        fields: ClassVar[list[str]] = []

    def filter_use(self, rows: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        """Return the policies with holders, or those without."""
        kinds = ("users", "projects", "domains", "key_pairs")
        used = Q()
        for kind in kinds:
            used |= Q(**{f"number_of_{kind}__gt": 0})
        return rows.filter(used if value else ~used)


class PolicyEditForm(EditForm, PolicyForm):
    """The form of a policy, with a check for unseen changes of others."""

    groups = (
        (_l("Concurrent use limit"), ("slots", "unnamed_slots", "max_sessions")),
        (_l("Pending limit"), ("max_pending_sessions", "max_pending_slots")),
        (_l("Stopped sessions"), ("max_stopped_sessions",)),
        (_l("One session"), ("max_priority", "max_kernels_per_session", "max_session_lifetime", "required_labels")),
        (_l("One user"), ("max_concurrent_logins", "max_customized_images", "max_system_sessions")),
        (_l("Inference endpoints"), ("max_endpoints", "max_replicas_per_endpoint")),
        (_l("Folders"), ("max_folders", "max_folder_bytes")),
        (_l("Default for new"), ("default_for",)),
    )

    class Meta(PolicyForm.Meta):
        pass

    def clean_slots(self) -> dict[str, str]:
        """Return the amounts. Raises ValidationError for an unknown slot."""
        return self._known("slots")

    def clean_max_pending_slots(self) -> dict[str, str]:
        """Return the amounts. Raises ValidationError for an unknown slot."""
        return self._known("max_pending_slots")

    def _known(self, field: str) -> dict[str, str]:
        amounts: dict[str, str] = self.cleaned_data[field]
        try:
            check_known(amounts, field=field, kept=self.initial.get(field) or ())
        except UserError as error:
            raise ValidationError(in_words(error.message)) from error
        return amounts


class Policies(ObjectPages):
    """Resource policies, for superadmins. The form of one shows its holders."""

    section = "policies"
    name = "policy"
    audit_name = "resource-policy"
    model = ResourcePolicy
    title = _l("Resource policies")
    icon = "adjustments"
    guide = "policies"
    lead = _l("resource limits; if several apply, the strictest counts")
    table_class = PolicyTable
    filterset_class = PolicyFilter
    empty_title = _l("No limits yet")
    empty_text = _l("Create a policy and assign it to users, projects, domains or key pairs on their pages.")
    form_class = PolicyEditForm
    form_template = "web/panel/policy.html"
    form_lead = _l("Changed limits take effect within two seconds; running sessions are not ended.")
    new_label = _l("New policy")
    save_label = _l("Save policy")
    saved_text = _l("Policy %(saved)s is saved.")
    delete_label = _l("Delete policy")
    delete_page = DeleteUnlessUsed
    can_deactivate = False
    question_text = _l("Delete policy %(object)s?")
    deleted_text = _l("Policy %(name)s is deleted.")

    def rows(self) -> QuerySet[ResourcePolicy]:
        """Return the policies with the numbers of their holders."""
        return ResourcePolicy.objects.with_holders().prefetch_related("default_for")

    def form_context(self) -> dict[str, Any]:
        """Return the first holders of each kind, by name."""
        holders = []
        for title, model, name in _KINDS if self.object else ():
            rows = model.objects.filter(policy=self.object).order_by(name)
            names = list(rows.values_list(name, flat=True)[: _MOST_NAMED + 1])
            if names:
                holders.append((title, names[:_MOST_NAMED], rows.count() - len(names[:_MOST_NAMED])))
        return {"holders": holders}

    def uses(self) -> list[References]:
        """Return the holders of the policy, and the kinds of new holders that get it."""
        counted: Any = self.rows().get(pk=self.object.pk)
        page = reverse("manage:policy", args=[self.object.pk])
        held = ((getattr(counted, f"number_of_{kind}"), word) for kind, word in HOLDER_WORDS.items())
        uses = [
            References(number, in_words(word if number == 1 else f"{word}s"), page) for number, word in held if number
        ]
        kinds = [in_words(PolicyDefault.Holder(default.holder).label) for default in counted.default_for.all()]
        return uses + [References(None, _("default for new %(names)s") % {"names": kind}, page) for kind in kinds]

    def delete(self) -> None:
        """Delete the policy. Raises Conflict that counts its holders."""
        delete_policy(self.viewer.pk, self.object)
