"""Activation of users, and passwords set by an administrator."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from backendai.domain.accounts.models import User
from backendai.domain.accounts.roles import Action, check_user
from backendai.domain.accounts.rules import check_password
from backendai.domain.accounts.sign_in.revocation import end_credentials, set_active
from backendai.domain.activity.services import audit


def set_user_active(actor: User, user: User, active: bool, *, now: datetime) -> bool:
    """Activate or deactivate a user; return whether that changed anything.

    Deactivating ends all logins and tokens. Running sessions continue.
    """
    check_user(actor, Action.SET_ACTIVE, user)
    return set_active(actor.pk, user, active, now=now)


def set_password(actor: User, user: User, password: str, *, now: datetime, end_tokens: bool = False) -> None:
    """Set a user's password and end all logins; with ``end_tokens`` also all access tokens."""
    check_user(actor, Action.SET_PASSWORD, user)
    check_password(password, user)
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        audit(actor.pk, "user.set-password", "user", [user.pk], email=user.email, ended_tokens=end_tokens)
        end_credentials(user, now=now, tokens=end_tokens)
