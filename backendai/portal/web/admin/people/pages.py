"""The list of users, and the page of a user."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from allauth.mfa.models import Authenticator
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.domain.accounts.models import AccessToken, Domain, KeyPair, Login, Membership, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.roles import Action, may_user, rules_people
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.purging import live_sessions_of
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.forms import name_text
from backendai.portal.web.admin.holdings import gauges_of
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable
from backendai.portal.web.admin.people.user_actions import purge_obstacles
from backendai.portal.web.templatetags.portal import ago

_ACTIONS = {
    "change": Action.CHANGE_USER,
    "activate": Action.SET_ACTIVE,
    "password": Action.SET_PASSWORD,
    "purge": Action.PURGE_USER,
}


class UserTable(PanelTable):
    """A table with one row for each user."""

    email = tables.LinkColumn("manage:user", args=[tables.A("pk")], verbose_name=_l("Address"))
    full_name = tables.Column(_l("Name"), default="–")
    role = tables.Column(_l("Role"))
    domain = tables.Column(_l("Domain"), default="–")
    is_active = tables.BooleanColumn(verbose_name=_l("Active"), yesno=(_l("yes"), _l("no")))
    project_count = tables.Column(_l("Projects"), attrs={"td": {"class": "number"}})
    policy = tables.Column(_l("Policy"), default=_l("no limits"))
    last_login = tables.Column(_l("Last signed in"), default=_l("never"))

    class Meta(PanelTable.Meta):
        model = User
        fields = ("email", "full_name", "role", "domain", "is_active", "project_count", "policy", "last_login")
        order_by = "email"

    def render_full_name(self, value: str) -> str:
        """Return the name, with its own writing direction."""
        return name_text(value)

    def value_full_name(self, value: str) -> str:
        return value

    def render_last_login(self, value: Any) -> str:
        return ago(value)

    def value_last_login(self, value: Any) -> str:
        return value.isoformat() if value else ""


class UserFilter(PanelFilter):
    """Filters users by words, role, domain and state."""

    search_fields = ("email", "full_name")
    search_hint = _l("Address or name")

    domain = django_filters.ModelChoiceFilter(
        queryset=lambda request: Domain.objects.visible_to(request.user), empty_label=_l("any")
    )
    role = django_filters.ChoiceFilter(choices=User.Role.choices, empty_label=_l("any"))

    class Meta:
        model = User
        fields: ClassVar[list[str]] = ["role", "domain", "is_active"]


class UserList(ListPage):
    """The list of users whom the administrator manages."""

    section = "users"
    title = _l("Users")
    lead = _l("who may sign in")
    rule = staticmethod(rules_people)
    table_class = UserTable
    filterset_class = UserFilter
    create_address = "manage:user-new"
    create_label = _l("New user")

    def get_queryset(self) -> QuerySet[User]:
        """Return the visible users with the number of their projects."""
        people: QuerySet[User] = User.objects.visible_to(self.viewer).select_related("domain", "policy")
        return people.annotate(project_count=number_of(Membership.objects.all(), "user"))


class UserPage(PanelPage, TemplateView):
    """One user: projects, sessions, limits, usage and credentials."""

    section = "users"
    rule = staticmethod(rules_people)
    template_name = "web/panel/user.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the user and their objects."""
        rows = User.objects.visible_to(self.viewer).select_related("domain", "policy")
        user = get_object_or_404(rows, pk=self.kwargs["pk"])
        viewer, now = self.request.user, timezone.now()
        assert isinstance(viewer, User)
        tokens = [token for token in AccessToken.objects.filter(user=user).select_related("user")]
        live = live_sessions_of(user)
        may = {name: may_user(viewer, action, user) for name, action in _ACTIONS.items()}
        shown = {
            "title": user.email,
            "person": user,
            "may": may,
            "purge_obstacles": purge_obstacles(user, live) if may["purge"] and not user.is_active else [],
            "memberships": user.memberships.select_related("project__domain").order_by("project__name"),
            "live": live,
            "ended": ComputeSession.objects.finished().filter(owner=user).count(),
            "gauges": gauges_of(user),
            "tokens": len(tokens),
            "valid_tokens": sum(token.is_valid(now) for token in tokens),
            "key_pairs": KeyPair.objects.filter(user=user).select_related("policy").order_by("created_at"),
            "may_limit": may_user(viewer, Action.SET_USER_POLICY, user),
            "factors": Authenticator.objects.filter(user=user).count(),
            "logins": Login.objects.filter(user=user).count(),
        }
        return super().get_context_data(**(shown | kwargs))
