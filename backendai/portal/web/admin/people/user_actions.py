"""Actions on one user: activation, a new password, reset of second factors, purge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import User
from backendai.domain.accounts.powers import powers_of
from backendai.domain.accounts.roles import Action, may_user, rules_people
from backendai.domain.accounts.services import set_password, set_user_active
from backendai.domain.accounts.sign_in.second_factors import reset_factors
from backendai.domain.compute.services.launching.purging import lasting_sessions_of, live_sessions_of, purge_user
from backendai.portal.web.admin.editing import ConfirmFormPage, ConfirmPage, Obstacle


def purge_obstacles(person: User, live: Mapping[str, int]) -> list[Obstacle]:
    """Return the obstacles to purging this user; ``live`` has the number of live sessions by status."""
    obstacles = []
    if person.is_active:
        address = reverse("manage:user-deactivate", args=[person.pk])
        obstacles.append(Obstacle(_("The account is active: deactivate it first."), address))
    if live:
        text = ", ".join(f"{number} {status}" for status, number in live.items())
        query = urlencode({"owner": person.email})
        words = _("Active sessions: terminate them first (%(text)s).") % {"text": text}
        obstacles.append(Obstacle(words, f"{reverse('web:sessions')}?{query}"))
    return obstacles


class UserAction(ConfirmPage):
    """The base of confirmations of an action on one user, for administrators who may do it."""

    section = "users"
    rule = staticmethod(rules_people)
    model = User
    list_address = "manage:users"
    row_address = "manage:user"
    action: Action
    object: User

    def get_queryset(self) -> QuerySet[User]:
        """Return the people whom the administrator sees."""
        people: QuerySet[User] = User.objects.visible_to(self.viewer)
        return people

    def may_change(self, row: User) -> bool:
        return may_user(self.viewer, self.action, row)


class DeactivatePage(UserAction):
    """Deactivates a user."""

    title = _l("Deactivate")
    submit_label = _l("Deactivate user")
    question_text = _l("Deactivate %(object)s?")
    action = Action.SET_ACTIVE

    def consequences(self) -> list[str]:
        live, stops = lasting_sessions_of(self.object), _restored(self.object)
        idle = [_("Until the account is activated again these do nothing: %(stops)s.") % {"stops": stops}]
        return [
            _("All their sign-ins and access tokens end, and open connections close within seconds."),
            *(idle if stops else ()),
            _("Their pending sessions are cancelled."),
            _("Their other sessions keep running (%(live)s live now) until an administrator terminates them.")
            % {"live": live},
            _("Activating the account again restores no sign-in and no token."),
        ]

    def act(self) -> str:
        """Deactivate the user, and return the message for the page."""
        set_user_active(self.viewer, self.object, False, now=timezone.now())
        return _("%(object)s is deactivated.") % {"object": self.object}


class ActivatePage(UserAction):
    """Activates a user."""

    title = _l("Activate")
    submit_label = _l("Activate user")
    question_text = _l("Activate %(object)s?")
    is_dangerous = False
    action = Action.SET_ACTIVE

    def consequences(self) -> list[str]:
        if self.object.domain_id is None and not self.object.last_login:
            return [
                _("They can sign in for the first time."),
                _("They have no domain and no project yet: set the domain, then add them to a project."),
            ]
        told = [_("They can sign in as before; access tokens and secrets of key pairs must be recreated.")]
        if starts := _restored(self.object):
            told.append(_("These act for them again at once: %(starts)s.") % {"starts": starts})
            told.append(_("Endpoints that were not stopped start their replicas again, and runs continue."))
        return told

    def act(self) -> str:
        set_user_active(self.viewer, self.object, True, now=timezone.now())
        return _("%(object)s is active again.") % {"object": self.object}


def _restored(person: User) -> str:
    """Return what does nothing while the person is deactivated and acts again afterwards, with numbers."""
    acting = powers_of(person, timezone.now())
    return ", ".join(f"{in_words(power.name)}: {held}" for power, held in acting if power.restored)


class ResetForm(forms.Form):
    """The new password of a user."""

    password = forms.CharField(
        label=_l("New password"),
        strip=False,
        max_length=128,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_l("At least 10 characters, and not a common one."),
    )
    end_tokens = forms.BooleanField(required=False, label=_l("Revoke their access tokens too"))


class PasswordPage(UserAction, ConfirmFormPage):
    """Sets the password of a user."""

    title = _l("Set a password")
    submit_label = _l("Set the password")
    question_text = _l("Set a new password for %(object)s?")
    action = Action.SET_PASSWORD

    def consequences(self) -> list[str]:
        return [
            _("All their sign-ins end."),
            _("Tell them the new password; they can change it on their account page."),
        ]

    def make_form(self, data: Any = None) -> forms.Form:
        return ResetForm(data)

    def done(self, form: forms.Form) -> str:
        set_password(self.viewer, self.object, now=timezone.now(), **form.cleaned_data)
        return _("%(object)s has a new password.") % {"object": self.object}


class ResetFactorsPage(UserAction):
    """Deletes the second factors of a user who has lost them."""

    title = _l("Reset second factors")
    submit_label = _l("Reset second factors")
    question_text = _l("Remove all second factors of %(object)s?")
    action = Action.SET_PASSWORD

    def consequences(self) -> list[str]:
        return [
            _("All second factors are removed. Until new ones are set up, the password alone is enough."),
            _("All their sign-ins end. Verify the identity of the person who asked for this."),
        ]

    def act(self) -> str:
        number = reset_factors(self.viewer.pk, self.object, now=timezone.now())
        return (
            _("%(object)s had %(number)s second factors.") % {"object": self.object, "number": number}
            if number
            else _("%(object)s had no second factor.") % {"object": self.object}
        )


class PurgePage(UserAction):
    """Purges a user."""

    title = _l("Purge")
    submit_label = _l("Purge user for good")
    question_text = _l("Purge %(object)s for good?")
    action = Action.PURGE_USER

    def consequences(self) -> list[str]:
        return [
            _("Name, address, keys, tokens, sign-ins and memberships are deleted and cannot be restored."),
            _(
                "Ended sessions, usage figures and the audit log stay. They no longer name the person, "
                "except in what the audit log recorded before."
            ),
        ]

    def obstacles(self) -> list[Obstacle]:
        """Return the obstacles: an active account, and live sessions."""
        return purge_obstacles(self.object, live_sessions_of(self.object))

    def typed_word(self) -> str:
        """Return the user's e-mail address, which must be typed."""
        return self.object.email

    def act(self) -> str:
        email = self.object.email
        purge_user(self.viewer, self.object, typed=self.request.POST.get("typed", ""), now=timezone.now())
        return _("%(email)s is purged.") % {"email": email}

    def address_of(self, row: User) -> str:
        """Return the address of the list after the purge, as the user has no page any more."""
        return reverse(self.list_address) if self.request.method == "POST" else super().address_of(row)
