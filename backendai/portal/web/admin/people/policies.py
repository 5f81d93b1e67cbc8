"""Pages of resource policies."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.core.slots import INFINITY
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Domain, KeyPair, PolicyDefault, Project, ResourcePolicy, User
from backendai.domain.accounts.policies.applicable import HOLDER_WORDS, held_text, holders_text
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.domain.accounts.policies.form import PolicyForm
from backendai.domain.accounts.services.policies import delete_policy
from backendai.domain.cluster.slot_types import check_known
from backendai.portal.web.admin.deleting import DeleteUnlessUsed, References
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable, YesNo

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
    max_sessions = tables.Column(_l("Sessions"), default=INFINITY, attrs={"td": {"class": "number"}})
    max_pending_sessions = tables.Column(_l("Waiting"), default=INFINITY, attrs={"td": {"class": "number"}})
    max_priority = tables.Column(_l("Priority"), default=INFINITY, attrs={"td": {"class": "number"}})
    max_session_lifetime = tables.Column(_l("Maximum lifetime"), default=INFINITY)
    holders = tables.Column(_l("Assigned to"), orderable=False, empty_values=())

    class Meta(PanelTable.Meta):
        model = ResourcePolicy
        fields = (
            "name", "slots", "max_sessions", "max_pending_sessions", "max_priority", "max_session_lifetime", "holders",
        )  # fmt: skip
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
        (_l("One session"), ("max_priority", "max_kernels_per_session", "max_session_lifetime")),
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


class PolicyList(ListPage):
    """The list of resource policies, for superadmins."""

    section = "policies"
    title = _l("Resource policies")
    lead = _l("resource limits; if several apply, the strictest counts")
    table_class = PolicyTable
    filterset_class = PolicyFilter
    create_address = "manage:policy-new"
    create_label = _l("New policy")
    empty_title = _l("No limits yet")
    empty_text = _l("Create a policy and assign it to users, projects, domains or key pairs on their pages.")

    def get_queryset(self) -> QuerySet[ResourcePolicy]:
        """Return the policies with the numbers of their holders."""
        return ResourcePolicy.objects.with_holders().prefetch_related("default_for")


class PolicyPage(FormPage):
    """The form of a new or existing policy, with its holders."""

    template_name = "web/panel/policy.html"
    section = "policies"
    title = _l("New policy")
    lead = _l("Changed limits take effect within two seconds; running sessions are not ended.")
    model = ResourcePolicy
    form_class = PolicyEditForm
    audit_name = "resource-policy"
    submit_label = _l("Save policy")
    delete_label = _l("Delete policy")
    list_address = "manage:policies"
    delete_address = "manage:policy-delete"

    def success_text(self, saved: Any) -> str:
        return _("Policy %(saved)s is saved.") % {"saved": saved}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the first holders of each kind, by name."""
        holders = []
        for title, model, name in _KINDS if self.object else ():
            rows = model.objects.filter(policy=self.object).order_by(name)
            names = list(rows.values_list(name, flat=True)[: _MOST_NAMED + 1])
            if names:
                holders.append((title, names[:_MOST_NAMED], rows.count() - len(names[:_MOST_NAMED])))
        return super().get_context_data(**({"holders": holders} | kwargs))


class PolicyDelete(DeleteUnlessUsed):
    """Deletes a policy without holders."""

    section = "policies"
    title = _l("Delete a policy")
    model = ResourcePolicy
    audit_name = "resource-policy"
    submit_label = _l("Delete policy")
    list_address = "manage:policies"
    can_deactivate = False

    def question(self) -> str:
        return _("Delete policy %(object)s?") % {"object": self.object}

    def uses(self) -> list[References]:
        """Return the holders of the policy, and the kinds of new holders that get it."""
        counted: Any = ResourcePolicy.objects.with_holders().prefetch_related("default_for").get(pk=self.object.pk)
        page = reverse("manage:policy", args=[self.object.pk])
        held = ((getattr(counted, f"number_of_{kind}"), word) for kind, word in HOLDER_WORDS.items())
        uses = [
            References(number, in_words(word if number == 1 else f"{word}s"), page) for number, word in held if number
        ]
        kinds = [in_words(PolicyDefault.Holder(default.holder).label) for default in counted.default_for.all()]
        return uses + [References(None, _("default for new %(names)s") % {"names": kind}, page) for kind in kinds]

    def act(self) -> str:
        """Delete the policy. Raises Conflict that counts its holders."""
        delete_policy(self.viewer.pk, self.object)
        return _("Policy %(object)s is deleted.") % {"object": self.object}
