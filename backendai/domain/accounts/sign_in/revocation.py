"""Ends logins, tokens and secrets.

Open websockets and apps check their credential again, and close. docs/security.md has a table of the events that end a
credential; tests/test_ends.py checks it.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import F, Q

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.models import AccessToken, DeviceRequest, KeyPair, Login, User
from backendai.domain.accounts.powers import powers_of
from backendai.domain.activity.services import audit


def set_active(actor_id: UUID | None, user: User, active: bool, *, now: datetime) -> bool:
    """Activate a user, or deactivate the user and end all credentials; return whether that changed anything.

    Everything else that acts for the user (``powers``) asks whether the user is active. The audit entry has the
    numbers. Raises Conflict for the last active superadmin.
    """
    with transaction.atomic():
        if not active:
            refuse_to_lose_the_last_superadmin(user)
        changed = User.objects.filter(pk=user.pk, is_active=not active).update(is_active=active)
        if not changed:
            return False
        acting = {} if active else {"acted": {str(power.name): held for power, held in powers_of(user, now)}}
        told = {"email": user.email} | {name: value for name, value in acting.items() if value}
        audit(actor_id, f"user.{'activate' if active else 'deactivate'}", "user", [user.pk], **told)
        if not active:
            end_credentials(user, now=now)
    user.is_active = active
    return True


def end_credentials(user: User, *, now: datetime, tokens: bool = True, but: str = "") -> int:
    """End every login of the user, and with ``tokens`` also access tokens, allowed computers and secrets of key pairs.

    Activating the account again does not restore them. The key pairs stay, as sessions name them. The login with the
    session key ``but`` stays; the caller must renew it. Returns the number of ended logins.
    """
    with transaction.atomic():
        # Logins of older releases are in no table: their cookies do not fit the new version.
        User.objects.filter(pk=user.pk).update(credentials_version=F("credentials_version") + 1)
        ended = end_logins(user, but=but)
        if tokens:
            lasting = Q(expires_at=None) | Q(expires_at__gt=now)
            AccessToken.objects.filter(lasting, user=user).update(expires_at=now)
            DeviceRequest.objects.filter(user=user).delete()  # those that were allowed would still get a token
            KeyPair.objects.filter(user=user).update(secret="")
    user.refresh_from_db(fields=["credentials_version"])
    return ended


def end_logins(user: User, *, but: str = "") -> int:
    """End the logins of the user, except the one with the session key ``but``; return how many."""
    rows = Login.objects.filter(user=user).exclude(session_key=but)
    keys = list(rows.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    rows.filter(session_key__in=keys).delete()
    return len(keys)


def refuse_to_lose_the_last_superadmin(user: User) -> None:
    """Raise Conflict if this user is the only active superadmin.

    Locks all active superadmins, so call it in a transaction.
    """
    superadmins = User.objects.select_for_update().filter(role=User.Role.SUPERADMIN, is_active=True)
    if [one.pk for one in superadmins] == [user.pk]:
        raise Conflict(
            "This is the only active superadmin. Make someone else a superadmin first.",
            code="last-superadmin",
            email=user.email,
        )
