"""What is done to one person: letting them in or not, a new password, purging."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from backendai.accounts.models import User
from backendai.accounts.roles import Deed, may_user, rules_people
from backendai.accounts.second_factors import reset_factors
from backendai.accounts.services import let_in, set_password
from backendai.compute.services.purging import live_sessions_of, purge_user
from backendai.core.errors import UserError
from backendai.web.panel.editing import ConfirmPage, show_error


class UserDeed(ConfirmPage):
    """Base: a question about one person, for those who may do the deed to them."""

    section = "users"
    rule = staticmethod(rules_people)
    model = User
    list_address = "manage:users"
    deed: Deed
    object: User

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer; for whoever may not do it, the page does not exist."""
        if isinstance(request.user, User) and rules_people(request.user):
            person = self.get_queryset().filter(pk=kwargs["pk"]).first()
            if person is None or not may_user(request.user, self.deed, person):
                raise Http404
        return super().dispatch(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[User]:
        """Return the people that one sees."""
        people: QuerySet[User] = User.objects.visible_to(self.viewer)
        return people

    def success_url(self) -> str:
        """Return to the person."""
        return reverse("manage:user", args=[self.object.pk])


class DeactivatePage(UserDeed):
    """Let somebody in no more."""

    title = "Deactivate"
    submit_label = "Deactivate"
    deed = Deed.SET_ACTIVE

    def question(self) -> str:
        """Return what is asked."""
        return f"Deactivate {self.object}?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        live = sum(live_sessions_of(self.object).values())
        return [
            "Every login and access token of theirs ends, and what they opened closes within seconds.",
            f"Their sessions go on ({live} now); an administrator ends them.",
            "Activating them again brings no login and no token back.",
        ]

    def act(self) -> str:
        """Do it."""
        let_in(self.viewer, self.object, False, now=timezone.now())
        return f"{self.object} is not let in any more."


class ActivatePage(UserDeed):
    """Let somebody in again."""

    title = "Activate"
    submit_label = "Activate"
    is_dangerous = False
    deed = Deed.SET_ACTIVE

    def question(self) -> str:
        """Return what is asked."""
        return f"Let {self.object} in again?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return ["They sign in as before; access tokens must be made anew."]

    def act(self) -> str:
        """Do it."""
        let_in(self.viewer, self.object, True, now=timezone.now())
        return f"{self.object} is let in again."


class ResetForm(forms.Form):
    """A new password."""

    password = forms.CharField(
        label="New password",
        strip=False,
        max_length=128,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="At least 10 characters, and not a common one.",
    )
    end_tokens = forms.BooleanField(required=False, label="End their access tokens too")


class PasswordPage(UserDeed):
    """Give somebody a new password."""

    template_name = "web/panel/confirm_form.html"
    title = "Set a password"
    submit_label = "Set the password"
    is_dangerous = False
    deed = Deed.SET_PASSWORD
    form: ResetForm | None = None

    def question(self) -> str:
        """Return what is asked."""
        return f"Set a new password for {self.object}?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return ["Every login of theirs ends.", "You tell them the new password; they change it on their account page."]

    def act(self) -> str:
        """Set it."""
        self.form = ResetForm(self.request.POST)
        if not self.form.is_valid():
            raise UserError("Look at the marked fields.")
        said = self.form.cleaned_data
        try:
            set_password(self.viewer, self.object, said["password"], now=timezone.now(), end_tokens=said["end_tokens"])
        except UserError as error:
            show_error(self.form, error)
            raise UserError("Look at the marked fields.") from error
        return f"{self.object} has a new password."

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the question with its fields."""
        return super().get_context_data(**({"form": self.form or ResetForm()} | kwargs))


class ResetFactorsPage(UserDeed):
    """Take the second factors from somebody who has lost them."""

    title = "Reset second factors"
    submit_label = "Reset second factors"
    deed = Deed.SET_PASSWORD

    def question(self) -> str:
        """Return what is asked."""
        return f"Take all second factors from {self.object}?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            "Codes, passkeys and recovery codes are gone; until new ones are set up, the password alone signs in.",
            "Every login of theirs ends. Be sure who asks you for this.",
        ]

    def act(self) -> str:
        """Do it."""
        number = reset_factors(self.viewer.pk, self.object, now=timezone.now())
        return f"{self.object} had {number} second factors." if number else f"{self.object} had no second factor."


class PurgePage(UserDeed):
    """Take somebody out for good."""

    title = "Purge"
    submit_label = "Purge for good"
    deed = Deed.PURGE_USER

    def question(self) -> str:
        """Return what is asked."""
        return f"Purge {self.object} for good?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        live = live_sessions_of(self.object)
        text = ", ".join(f"{number} {status}" for status, number in live.items())
        return [
            *(["The account is active: deactivate it first."] if self.object.is_active else []),
            *([f"Sessions that have not ended stand in the way: {text}."] if live else []),
            "Name, address, keys, tokens, logins and memberships are deleted and cannot be brought back.",
            "Sessions that have ended, figures of use and the audit trail stay; they name nobody, except that the "
            "audit trail keeps what it said.",
        ]

    def typed_word(self) -> str:
        """Return the address."""
        return self.object.email

    def act(self) -> str:
        """Purge them."""
        email = self.object.email
        purge_user(self.viewer, self.object, typed=self.request.POST.get("typed", ""), now=timezone.now())
        return f"{email} is purged."

    def success_url(self) -> str:
        """Return to the list: there is no page of them any more."""
        return reverse(self.list_address) if self.request.method == "POST" else super().success_url()
