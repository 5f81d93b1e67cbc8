"""Records sign-outs, wrong codes and changes of second factors. Signals of Django and allauth call these functions."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed, authenticator_added, authenticator_removed, authenticator_reset
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest

from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.sign_ins import note_failure, note_logout
from backendai.domain.activity.services import audit


@receiver(user_logged_out)
def keep_logout(request: HttpRequest, user: User | None, **_: Any) -> None:
    """Record a sign-out. Does nothing if nobody was signed in."""
    if user is not None:
        note_logout(request, user)


@receiver(authentication_failed)
def keep_wrong_code(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    """Record a wrong second factor as a failed sign-in."""
    note_failure(request, user.email, step=str(authenticator.type), user=user)


@receiver(authenticator_added)
def keep_added_factor(user: User, authenticator: Authenticator, **_: Any) -> None:
    """Record a new second factor."""
    _keep(user, "user.add-factor", authenticator)


@receiver(authenticator_removed)
def keep_removed_factor(user: User, authenticator: Authenticator, **_: Any) -> None:
    """Record the removal of a second factor."""
    _keep(user, "user.remove-factor", authenticator)


@receiver(authenticator_reset)
def keep_new_codes(user: User, authenticator: Authenticator, **_: Any) -> None:
    """Record that the recovery codes were renewed."""
    _keep(user, "user.renew-factor", authenticator)


def _keep(user: User, action: str, authenticator: Authenticator) -> None:
    name = authenticator.data.get("name", "") if authenticator.type == Authenticator.Type.WEBAUTHN else ""
    audit(user.pk, action, "user", [user.pk], factor=str(authenticator.type), name=name)
