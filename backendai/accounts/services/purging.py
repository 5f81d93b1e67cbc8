"""Taking everything personal out of an account for good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import CASCADE

from backendai.accounts.models import User
from backendai.accounts.roles import Action, check_user
from backendai.activity.services import audit
from backendai.core.errors import Conflict, UserError


def check_purge(actor: User, user: User, *, typed: str) -> None:
    """Refuse unless the actor may purge this user, has typed their address, and the account is not active."""
    check_user(actor, Action.PURGE_USER, user)
    if user.is_active:
        raise Conflict("The account is active. Deactivate it first.", code="still-active")
    if typed.strip().lower() != user.email:
        raise UserError("Type the address exactly as it is.", field="email", code="not-confirmed")


def purge(actor: User, user: User, *, typed: str, now: datetime) -> None:
    """Take name, address, keys and memberships out of an account. Its row stays without them, because sessions that
    have ended and figures of use name it; nobody can sign in to it, and nobody sees it any more."""
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user.pk)
        check_purge(actor, user, typed=typed)
        audit(actor.pk, "user.purge", "user", [user.pk], email=user.email)
        _delete_belongings(user)
        user.email, user.full_name = f"purged-{user.pk.hex}@portal.invalid", ""
        user.role, user.is_superuser, user.domain, user.policy = User.Role.USER, False, None, None
        user.purged_at, user.last_login = now, None
        user.set_unusable_password()
        user.save()


def _delete_belongings(user: User) -> None:
    """Delete what would go with the row: keys, logins, memberships, and whatever rooms above keep about a person.
    What counts over time says of itself that it stays (``outlives_people``)."""
    for relation in user._meta.related_objects:
        model: Any = relation.related_model
        if relation.on_delete is CASCADE and not getattr(model, "outlives_people", False):
            model._base_manager.filter(**{relation.field.name: user}).delete()
