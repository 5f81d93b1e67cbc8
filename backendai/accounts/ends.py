"""The ends of what lets somebody in. Whatever was opened by it (websockets, apps) is looked at again, and closes.

The table of what ends at what is in docs/security.md, and tests/test_ends.py holds it.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import F, Q

from backendai.accounts.models import AccessToken, KeyPair, Login, User
from backendai.activity.services import audit
from backendai.core.errors import Conflict


def set_active(actor_id: UUID | None, user: User, active: bool, *, now: datetime) -> bool:
    """Let somebody in again, or end everything that lets them in; return whether that changed anything. A Conflict
    when nobody could administer the platform any more."""
    with transaction.atomic():
        if not active:
            refuse_to_lose_the_last_superadmin(user)
        changed = User.objects.filter(pk=user.pk, is_active=not active).update(is_active=active)
        if not changed:
            return False
        audit(actor_id, f"user.{'activate' if active else 'deactivate'}", "user", [user.pk], email=user.email)
        if not active:
            end_credentials(user, now=now)
    user.is_active = active
    return True


def end_credentials(user: User, *, now: datetime, tokens: bool = True, but: str = "") -> int:
    """End every login of this person; and every access token and the secrets of key pairs, unless ``tokens`` is False.
    They stay ended when the account is let in again. Key pairs themselves stay: sessions run under their names. The
    login of the session with the key ``but`` is left to the caller to renew. Returns how many logins were known."""
    with transaction.atomic():
        # Logins of older releases are in no table: their cookies do not fit the new version.
        User.objects.filter(pk=user.pk).update(credentials_version=F("credentials_version") + 1)
        ended = end_logins(user, but=but)
        if tokens:
            lasting = Q(expires_at=None) | Q(expires_at__gt=now)
            AccessToken.objects.filter(lasting, user=user).update(expires_at=now)
            KeyPair.objects.filter(user=user).update(secret="")
    user.refresh_from_db(fields=["credentials_version"])
    return ended


def end_logins(user: User, *, but: str = "") -> int:
    """End the logins of this person, except the one of the session with the key ``but``; return how many."""
    rows = Login.objects.filter(user=user).exclude(session_key=but)
    keys = list(rows.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    rows.filter(session_key__in=keys).delete()
    return len(keys)


def refuse_to_lose_the_last_superadmin(user: User) -> None:
    """Raise a Conflict when nobody but this user is an active superadmin. In the transaction of the action."""
    superadmins = User.objects.select_for_update().filter(role=User.Role.SUPERADMIN, is_active=True)
    if [one.pk for one in superadmins] == [user.pk]:
        raise Conflict(
            "This is the only active superadmin. Make someone else a superadmin first.",
            code="last-superadmin",
            email=user.email,
        )
