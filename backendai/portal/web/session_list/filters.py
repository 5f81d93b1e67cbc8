"""The filters of the list of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import django_filters
from django import forms
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backendai.base.core.session_kinds import KINDS
from backendai.domain.accounts.models import Domain, Project, User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.querysets import with_labels
from backendai.domain.compute.status import LIVE, Status
from backendai.portal.web.frame.statuses import appearance_of
from backendai.portal.web.session_list.address import Address
from backendai.portal.web.session_list.columns import may_see_agents

_FOR_ADMINISTRATORS = ("owner", "project")
_FOR_SUPERADMINS = ("domain",)
PROPERTIES = frozenset({"status", "group", "agent", "owner", "project", "domain", "label", "id"})


def _groups(user: Any) -> QuerySet[Any, Any]:
    return ResourceGroup.objects.visible_to(user).order_by("name").values_list("name", flat=True)


class SessionListFilter(django_filters.FilterSet):
    """Filters sessions.

    Names are first looked up in their small tables, as a join would check every session. Filters that the user may not
    use are not offered, and ignored in an address.
    """

    status = django_filters.MultipleChoiceFilter(label=_("Status"), widget=forms.CheckboxSelectMultiple, distinct=False)
    group = django_filters.ChoiceFilter(
        field_name="resource_group__name", label=_("Resource group"), empty_label=_("any")
    )
    agent = django_filters.CharFilter(method="on_agent", label=_("Agent"), max_length=64)
    owner = django_filters.CharFilter(method="of_owner", label=_("Owner"), max_length=254)
    project = django_filters.CharFilter(method="of_project", label=_("Project"), max_length=64)
    domain = django_filters.CharFilter(method="of_domain", label=_("Domain"), max_length=64)
    label = django_filters.CharFilter(
        method="with_these_labels",
        label=_("Label"),
        max_length=254,
        widget=forms.TextInput(attrs={"placeholder": "experiment=baseline"}),
    )
    id = django_filters.UUIDFilter(label=_("Session ID"))

    class Meta:
        model = ComputeSession
        fields: ClassVar[list[str]] = []

    def __init__(self, data: QueryDict, *, user: User, finished: bool, groups: Sequence[str]) -> None:
        super().__init__(data, ComputeSession.objects.none())
        for name in _hidden_from(user):
            del self.filters[name]
        statuses = [status for status in Status if (status in LIVE) != finished]
        self.filters["status"].extra["choices"] = [(status.value, appearance_of(status).word) for status in statuses]
        self.filters["group"].extra["choices"] = [(name, name) for name in groups]

    def on_agent(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the sessions that have or had a kernel on this agent."""
        return rows.filter(pk__in=Kernel.objects.filter(agent__name=text).order_by().values("session"))

    def of_owner(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the sessions of owners whose address contains this text."""
        return rows.filter(owner__in=User.objects.filter(email__icontains=text).values("pk"))

    def of_project(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the sessions in projects of this name."""
        return rows.filter(project__in=Project.objects.filter(name=text).values("pk"))

    def with_these_labels(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the sessions with all these labels; the input shows the last one."""
        return with_labels(rows, self.data.getlist(name))

    def of_domain(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the sessions in projects of this domain."""
        domains = Domain.objects.filter(name=text)
        return rows.filter(project__in=Project.objects.filter(domain__in=domains).values("pk"))


@dataclass(frozen=True, slots=True)
class Chip:
    """An active filter, and the address of the list without it."""

    label: str | Promise
    value: str
    address: str


def group_names(user: User) -> list[str]:
    """Return the names of the resource groups open to this user, in one query."""
    return list(_groups(user))


def narrowed(rows: QuerySet[Any], found: SessionListFilter) -> QuerySet[Any]:
    """Return the rows that match the filters; invalid values are ignored."""
    found.is_valid()  # reads what was asked for
    narrower: QuerySet[Any] = found.filter_queryset(rows)
    return narrower


def chips(address: Address, found: SessionListFilter) -> list[Chip]:
    """Return the active filters."""
    shown = []
    for name, value in address.params:
        if name in found.filters and found.form.cleaned_data.get(name) and name not in found.form.errors:
            text = appearance_of(value).word if name == "status" else value
            shown.append(Chip(found.filters[name].label, text, address.without(name, value)))
    return shown


def kind_of(address: Address) -> str:
    """Return the requested type of sessions; empty for all."""
    kind = address.get("type")
    return kind if kind in KINDS else ""


def _hidden_from(user: User) -> list[str]:
    hidden: list[str] = []
    if not may_see_agents(user):
        hidden.append("agent")
    if user.role == User.Role.USER:
        hidden += [*_FOR_ADMINISTRATORS, "id"]
    if not user.is_superadmin:
        hidden += _FOR_SUPERADMINS
    return hidden
