"""Adapts django-allauth to the platform: sign-in, repeated proof of identity, and second factors."""

from __future__ import annotations

import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.contrib.auth import authenticate
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.known_browsers import remember_browser
from backendai.domain.accounts.sign_in.second_factors import is_required_of, seal, unseal
from backendai.domain.accounts.sign_in.sign_ins import note_login

FRESH_SECONDS = 300
_WORDS = {"totp": "app", "recovery_codes": "recovery-code", "webauthn": "passkey"}


class PortalAdapter(DefaultAccountAdapter):
    """Sign-in, and the repeated proof of identity before sensitive actions."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": Message("Wrong e-mail address or password."),
        "incorrect_password": Message("This is not your password."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: allauth never creates accounts, neither from its own forms nor from a provider's claims."""
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count no attempt: ``PatientBackend`` counts the attempts in the database."""

    def login(self, request: HttpRequest, user: Any) -> None:
        """Sign the user in, and record the login with the methods that proved it."""
        super().login(request, user)
        request.session.set_expiry(None)  # what it may have been before was for strangers
        note_login(request, user, methods_of(request, user), now=timezone.now())

    def post_login(self, request: HttpRequest, user: Any, **how: Any) -> HttpResponse:
        """Redirect the user after signing in, and mark the browser as known for this account."""
        response: HttpResponse = super().post_login(request, user, **how)
        remember_browser(request, response, user.email)
        return response

    def reauthenticate(self, user: Any, password: str) -> bool:
        """Return whether this is the password of the signed-in user."""
        found = authenticate(context.request, email=user.email, password=password)
        return found is not None and found.pk == user.pk

    def is_reauthentication_required(self, *, app: str) -> bool:
        """Return whether the user's last proof of identity is more than five minutes old.

        Signing in counts as a proof.
        """
        request = context.request
        records = get_authentication_records(request, request.user)
        return not any(time.time() - record["at"] < FRESH_SECONDS for record in records)

    def is_safe_url(self, url: str) -> bool:
        """Return whether the portal may redirect to this URL after signing in: only to its own origin.

        The other hosts of the portal may hold apps of users.
        """
        request = context.request
        return url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        """Redirect a deactivated user to the sign-in page, with the reason.

        The user has entered the right password, so the reason reveals nothing.
        """
        messages.error(request, Message("This account is not active. Ask an administrator of this installation."))
        return HttpResponseRedirect(resolve_url("web:login"))


class PortalFactors(DefaultMFAAdapter):
    """Stores, names and protects second factors."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": Message("This is not a valid code, or it was used before."),
        "cannot_delete_authenticator": (
            Message("Everybody in your role needs a second factor here. Set up another one, then remove this.")
        ),
    }

    def encrypt(self, text: str) -> str:
        """Return the secret of a factor, encrypted for the database."""
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return the secret of a factor, decrypted from the database."""
        return unseal(encrypted_text)

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Return False for the last second factor of a user who must have one. Recovery codes do not count as one."""
        user = User.objects.get(pk=authenticator.user_id)
        others = Authenticator.objects.filter(user_id=user.pk).exclude(pk=authenticator.pk)
        return not is_required_of(user) or others.exclude(type=Authenticator.Type.RECOVERY_CODES).exists()

    def generate_authenticator_name(self, user: Any, type: Authenticator.Type) -> str:
        """Return the default name of a new factor: ``Passkey``, then ``Passkey 2`` and so on."""
        number = Authenticator.objects.filter(user_id=user.pk, type=type).count() + 1
        return "Passkey" if number == 1 else Message("Passkey {number}", number=number)


def has_proved_lately() -> bool:
    """Return whether the user of this request has proved their identity within the last five minutes."""
    return not PortalAdapter().is_reauthentication_required(app="account")


def methods_of(request: HttpRequest, user: Any) -> list[str]:
    """Return the methods that proved this login, in order: ``password``, ``app``, ``passkey``, or a provider's name."""
    found: list[str] = []
    for record in get_authentication_records(request, user):
        name = record.get("type") or record.get("provider") or record["method"]
        name = _WORDS.get(name, name)
        if name not in found:
            found.append(name)
    return found
