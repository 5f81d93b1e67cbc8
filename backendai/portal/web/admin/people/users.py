"""The list of users, the page of a user, and forms that create and change a user or limit a key pair."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from allauth.mfa.models import Authenticator
from django import forms
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import path, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.views.generic import TemplateView

from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import AccessToken, Domain, KeyPair, Login, Membership, Project, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.roles import Action, Rank, may_user, rank_of, rules_people
from backendai.domain.accounts.services import NewUser, change_user, create_user
from backendai.domain.accounts.services.grants import default_policy
from backendai.domain.accounts.services.key_pairs import limit_key_pair
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.purging import live_sessions_of
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import (
    ListPage,
    NameColumn,
    NumberColumn,
    PanelFilter,
    PanelTable,
    TimeColumn,
    YesNoColumn,
)
from backendai.portal.web.admin.people import user_actions
from backendai.portal.web.dashboard.gauges import gauges_of_holder

_ACTIONS = {
    "change": Action.CHANGE_USER,
    "activate": Action.SET_ACTIVE,
    "password": Action.SET_PASSWORD,
    "purge": Action.PURGE_USER,
}
_NEEDS = {
    "role": Action.SET_ROLE,
    "domain": Action.MOVE_USER,
    "policy": Action.SET_USER_POLICY,
    "share_weight": Action.SET_USER_WEIGHT,
}


class UserTable(PanelTable):
    """A table with one row for each user."""

    email = tables.LinkColumn("manage:user", args=[tables.A("pk")], verbose_name=_l("Address"))
    full_name = NameColumn(_l("Name"), default="–")
    role = tables.Column(_l("Role"))
    domain = tables.Column(_l("Domain"), default="–")
    is_active = YesNoColumn(_l("Active"))
    project_count = NumberColumn(_l("Projects"))
    policy = tables.Column(_l("Policy"), default=_l("no limits"))
    last_login = TimeColumn(_l("Last signed in"), default=_l("never"))

    class Meta(PanelTable.Meta):
        model = User
        order_by = "email"


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


class UserForm(EditForm):
    """The form of a user, without the fields that the administrator may not set."""

    groups: ClassVar[tuple[tuple[str | Promise, tuple[str, ...]], ...]] = (
        (_l("Access"), ("role", "domain")),
        (_l("Limits"), ("policy", "share_weight")),
    )

    class Meta:
        model = User
        fields: ClassVar[list[str]] = ["email", "full_name", "role", "domain", "policy", "share_weight"]
        labels: ClassVar[dict[str, Any]] = {"email": _l("E-mail address"), "full_name": _l("Name")}
        help_texts: ClassVar[dict[str, Any]] = {
            "role": _l("Another role ends all their sign-ins and tokens."),
            "policy": _l("Leave empty for no personal limit. Key pair, project and domain limits still apply."),
        }

    def __init__(self, *args: Any, actor: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            self._leave_out(["domain"] if rank_of(actor) < Rank.SUPERADMIN else [], "share_weight")
        else:
            self._leave_out([name for name, action in _NEEDS.items() if not may_user(actor, action, self.instance)])
        if role := self.fields.get("role"):
            above = {} if rank_of(actor) == Rank.SUPERADMIN else {User.Role.SUPERADMIN}
            role.choices = [one for one in User.Role.choices if one[0] not in above]  # type: ignore[attr-defined]

    def _leave_out(self, names: list[str], *more: str) -> None:
        for name in (*names, *more):
            self.fields.pop(name, None)


class NewUserForm(UserForm):
    """The form of a new user."""

    groups = (
        (_l("Access"), ("password", "role", "domain", "projects")),
        (_l("Limits"), ("policy",)),
    )
    password = forms.CharField(
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_l("At least 10 characters. Tell it to them, or leave it empty and invite them instead."),
    )
    projects = forms.ModelMultipleChoiceField(
        Project.objects.none(),
        required=False,
        help_text=_l("Sessions belong to a project: without one, none can start."),
    )

    def __init__(self, *args: Any, actor: User, **kwargs: Any) -> None:
        super().__init__(*args, actor=actor, **kwargs)
        projects = Project.objects.managed_by(actor).filter(is_active=True).select_related("domain")
        self.fields["projects"].queryset = projects.order_by("domain__name", "name")  # type: ignore[attr-defined]
        if rank_of(actor) == Rank.SUPERADMIN:
            self.fields["projects"].label_from_instance = lambda one: f"{one.domain} / {one}"  # type: ignore[attr-defined]
        self.fields["role"].help_text = ""
        self.initial.setdefault("domain", actor.domain_id)
        self.initial.setdefault("policy", default_policy("user"))
        own = projects.filter(domain=actor.domain_id) if actor.domain_id else projects
        if len(only := list(own[:2])) == 1:  # otherwise nobody but the administrator knows which one
            self.initial.setdefault("projects", only)
            self.initial["domain"] = only[0].domain_id


class UserFormPage(FormPage):
    """The base of the forms of one user."""

    section = "users"
    rule = staticmethod(rules_people)
    model = User
    submit_label = _l("Save user")
    list_address = "manage:users"
    row_address = "manage:user"

    def make_form(self, data: Any = None) -> EditForm:
        """Return the form with the fields that this administrator may fill."""
        return self.form_class(data, instance=self.object, actor=self.viewer)


class NewUserPage(UserFormPage):
    """The form of a new user."""

    title = _l("New user")
    lead = _l("They can sign in at once with the password. To let them choose it themselves, invite them.")
    form_class = NewUserForm
    submit_label = _l("Create user")

    def save(self, form: EditForm) -> Any:
        """Create the user by the service, with its checks and audit entry."""
        said = form.cleaned_data
        names = ("email", "full_name", "role", "policy", "password", "projects")
        domain: Domain | None = said.get("domain", self.viewer.domain)
        return create_user(self.viewer, NewUser(**{name: said[name] for name in names}, domain=domain))


class EditUserPage(UserFormPage):
    """The form of an existing user."""

    title = _l("User")
    form_class = UserForm

    def get_queryset(self) -> QuerySet[User]:
        """Return the people whom the administrator sees."""
        people: QuerySet[User] = User.objects.visible_to(self.viewer)
        return people

    def may_change(self, row: User) -> bool:
        return may_user(self.viewer, Action.CHANGE_USER, row)

    def save(self, form: EditForm) -> Any:
        """Save the user by the service, with its checks and audit entry."""
        return change_user(self.viewer, self.find(), form.values(), now=timezone.now())


class KeyPairLimitForm(EditForm):
    """The limits of a key pair; its owner sets the rest."""

    class Meta:
        model = KeyPair
        fields: ClassVar[list[str]] = ["policy", "rate_limit"]
        labels: ClassVar[dict[str, Any]] = {"policy": _l("Policy"), "rate_limit": _l("Signed requests in 15 minutes")}
        help_texts: ClassVar[dict[str, Any]] = {
            "policy": _l("Empty: no limits of its own; those of its owner, project and domain still apply."),
            "rate_limit": _l("0: no limit."),
        }


class KeyPairLimits(FormPage):
    """The limits of one key pair."""

    section = "users"
    lead = _l("Sessions launched with this key pair count against it. Changing a limit does not end running sessions.")
    rule = staticmethod(rules_people)
    model = KeyPair
    form_class = KeyPairLimitForm
    submit_label = _l("Save limits")
    saved_text = _l("The limits of %(saved)s are saved.")
    list_address = "manage:users"

    def get_queryset(self) -> QuerySet[KeyPair]:
        """Return the key pairs of the people whom the user sees."""
        people = User.objects.visible_to(self.viewer).order_by()
        return KeyPair.objects.filter(user__in=people.values("pk")).select_related("user")

    def may_change(self, row: KeyPair) -> bool:
        return may_user(self.viewer, Action.SET_USER_POLICY, row.user)

    def save(self, form: EditForm) -> Any:
        """Save the limits by the service, with its checks and audit entry."""
        return limit_key_pair(self.viewer, self.find(), form.values())

    def address_of(self, row: KeyPair) -> str:
        """Return the address of the owner's page."""
        return reverse("manage:user", args=[row.user_id])


class UserPage(PanelPage, TemplateView):
    """One user: projects, sessions, limits, usage and credentials."""

    section = "users"
    rule = staticmethod(rules_people)
    template_name = "web/panel/user.html"

    def page_context(self) -> dict[str, Any]:
        """Return the user and their objects."""
        rows = User.objects.visible_to(self.viewer).select_related("domain", "policy")
        user = get_object_or_404(rows, pk=self.kwargs["pk"])
        viewer, now = self.viewer, timezone.now()
        tokens = [token for token in AccessToken.objects.filter(user=user).select_related("user")]
        live = live_sessions_of(user)
        may = {name: may_user(viewer, action, user) for name, action in _ACTIONS.items()}
        return {
            "title": user.email,
            "person": user,
            "may": may,
            "purge_obstacles": user_actions.purge_obstacles(user, live) if may["purge"] and not user.is_active else [],
            "memberships": user.memberships.select_related("project__domain").order_by("project__name"),
            "live": live,
            "ended": ComputeSession.objects.finished().filter(owner=user).count(),
            "gauges": gauges_of_holder(user),
            "tokens": len(tokens),
            "valid_tokens": sum(token.is_valid(now) for token in tokens),
            "key_pairs": KeyPair.objects.filter(user=user).select_related("policy").order_by("created_at"),
            "may_limit": may_user(viewer, Action.SET_USER_POLICY, user),
            "factors": Authenticator.objects.filter(user=user).count(),
            "logins": Login.objects.filter(user=user).count(),
        }


class Users(ListPage):
    """The list of users whom the administrator manages."""

    section = "users"
    title = _l("Users")
    icon = "users"
    guide = "people"
    lead = _l("who may sign in")
    rule = staticmethod(rules_people)
    table_class = UserTable
    filterset_class = UserFilter
    create_address = "manage:user-new"
    create_label = _l("New user")
    more = (
        path("users/new/", NewUserPage.as_view(), name="user-new"),
        path("users/<uuid:pk>/", UserPage.as_view(), name="user"),
        path("users/<uuid:pk>/change/", EditUserPage.as_view(), name="user-change"),
        path("users/<uuid:pk>/activate/", user_actions.ActivatePage.as_view(), name="user-activate"),
        path("users/<uuid:pk>/deactivate/", user_actions.DeactivatePage.as_view(), name="user-deactivate"),
        path("users/<uuid:pk>/password/", user_actions.PasswordPage.as_view(), name="user-password"),
        path("users/<uuid:pk>/factors/", user_actions.ResetFactorsPage.as_view(), name="user-factors"),
        path("users/<uuid:pk>/purge/", user_actions.PurgePage.as_view(), name="user-purge"),
        path("key-pairs/<str:pk>/", KeyPairLimits.as_view(), name="key-pair"),
    )

    def get_queryset(self) -> QuerySet[User]:
        """Return the visible users with the number of their projects."""
        people: QuerySet[User] = User.objects.visible_to(self.viewer).select_related("domain", "policy")
        return people.annotate(project_count=number_of(Membership.objects.all(), "user"))
