"""Forms that create and change a user."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.models import Domain, Project, User
from backendai.domain.accounts.roles import Action, Rank, may_user, rank_of, rules_people
from backendai.domain.accounts.services import NewUser, change_user, create_user
from backendai.domain.accounts.services.grants import default_policy
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm

_NEEDS = {
    "role": Action.SET_ROLE,
    "domain": Action.MOVE_USER,
    "policy": Action.SET_USER_POLICY,
    "share_weight": Action.SET_USER_WEIGHT,
}


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
    audit_name = "user"
    submit_label = _l("Save user")
    list_address = "manage:users"

    def make_form(self, data: Any = None) -> EditForm:
        """Return the form with the fields that this administrator may fill."""
        return self.form_class(data, instance=self.object, actor=self.viewer)

    def success_url(self, saved: Any) -> str:
        """Return the address of the user's page."""
        return reverse("manage:user", args=[saved.pk])


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

    def find(self, *, for_update: bool = False) -> Any:
        """Return the user; 404 unless the administrator may change them."""
        found = super().find(for_update=for_update)
        if not may_user(self.viewer, Action.CHANGE_USER, found):
            raise Http404
        return found

    def save(self, form: EditForm) -> Any:
        """Save the user by the service, with its checks and audit entry."""
        wishes = {name: form.cleaned_data[name] for name in form.fields if name != "version"}
        return change_user(self.viewer, User.objects.get(pk=self.object.pk), wishes, now=timezone.now())
