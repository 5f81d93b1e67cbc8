"""How django-allauth does things here."""

from __future__ import annotations

import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.contrib.auth import authenticate
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from backendai.accounts.known_browsers import remember_browser
from backendai.accounts.models import User
from backendai.accounts.second_factors import is_required_of, seal, unseal
from backendai.accounts.sign_ins import note_login
from backendai.core.messages import Message

FRESH_SECONDS = 300
_WORDS = {"totp": "app", "recovery_codes": "recovery-code", "webauthn": "passkey"}


class PortalAdapter(DefaultAccountAdapter):
    """Signing in and proving again who one is."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": Message("Wrong e-mail address or password."),
        "incorrect_password": Message("This is not your password."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: allauth makes no account, neither from its own forms nor from what a provider says."""
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count nothing: the backend does, in the database."""

    def login(self, request: HttpRequest, user: Any) -> None:
        """Begin the login, and keep how it was proved."""
        super().login(request, user)
        request.session.set_expiry(None)  # what it may have been before was for strangers
        note_login(request, user, methods_of(request, user), now=timezone.now())

    def post_login(self, request: HttpRequest, user: Any, **how: Any) -> HttpResponse:
        """Send the person on, and let the browser be known as one of theirs."""
        response: HttpResponse = super().post_login(request, user, **how)
        remember_browser(request, response, user.email)
        return response

    def reauthenticate(self, user: Any, password: str) -> bool:
        """Return whether this is the password of the one who is signed in."""
        found = authenticate(context.request, email=user.email, password=password)
        return found is not None and found.pk == user.pk

    def is_reauthentication_required(self, *, app: str) -> bool:
        """Return whether it is too long ago that somebody proved who they are. Signing in counts."""
        request = context.request
        records = get_authentication_records(request, request.user)
        return not any(time.time() - record["at"] < FRESH_SECONDS for record in records)

    def is_safe_url(self, url: str) -> bool:
        """Return whether one may be sent there after signing in: our own origin only. The hosts that the portal answers
        to may hold the apps of users."""
        request = context.request
        return url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        """Send somebody who is let in no more back, with the reason: they have proved who they are."""
        messages.error(request, Message("This account is not active. Ask an administrator of this installation."))
        return HttpResponseRedirect(resolve_url("web:login"))


class PortalFactors(DefaultMFAAdapter):
    """Second factors."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": Message("This is not a valid code, or it was used before."),
        "cannot_delete_authenticator": (
            Message("Everybody in your role needs a second factor here. Set up another one, then remove this.")
        ),
    }

    def encrypt(self, text: str) -> str:
        """Return a secret as it is kept."""
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return a secret that was kept."""
        return unseal(encrypted_text)

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Return False for the last factor of somebody who has to have one."""
        user = User.objects.get(pk=authenticator.user_id)
        others = Authenticator.objects.filter(user_id=user.pk).exclude(pk=authenticator.pk)
        return not is_required_of(user) or others.exclude(type=Authenticator.Type.RECOVERY_CODES).exists()

    def generate_authenticator_name(self, user: Any, type: Authenticator.Type) -> str:
        """Return the name that the form for a passkey proposes."""
        number = Authenticator.objects.filter(user_id=user.pk, type=type).count() + 1
        return "Passkey" if number == 1 else Message("Passkey {number}", number=number)


def has_proved_lately() -> bool:
    """Return whether the person of this request has proved who they are within the last five minutes."""
    return not PortalAdapter().is_reauthentication_required(app="account")


def methods_of(request: HttpRequest, user: Any) -> list[str]:
    """Return by what this login was proved, in order: ``password``, ``app``, ``passkey``, a provider's name."""
    found: list[str] = []
    for record in get_authentication_records(request, user):
        name = record.get("type") or record.get("provider") or record["method"]
        name = _WORDS.get(name, name)
        if name not in found:
            found.append(name)
    return found
