"""Purges accounts: deletes all their personal data for good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import CASCADE

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import User
from backendai.domain.accounts.roles import Action, check_user
from backendai.domain.activity.services import audit


def check_purge(actor: User, user: User, *, typed: str) -> None:
    """Raise an error unless the actor may purge this inactive user and has typed the user's address.

    NotAllowed, Conflict (still active), or UserError (wrong address).
    """
    check_user(actor, Action.PURGE_USER, user)
    if user.is_active:
        raise Conflict("The account is active. Deactivate it first.", code="still-active")
    if typed.strip().lower() != user.email:
        raise UserError("Type the address exactly as it is.", field="email", code="not-confirmed")


def purge(actor: User, user: User, *, typed: str, now: datetime) -> None:
    """Delete name, address, keys and memberships of an account.

    Its row stays without them, because ended sessions and usage refer to it. Nobody can sign in to it or see it.
    """
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
    """Delete the rows that a deletion of the user would delete too: keys, logins, memberships and others.

    Models with ``outlives_people`` keep their rows.
    """
    for relation in user._meta.related_objects:
        model: Any = relation.related_model
        if relation.on_delete is CASCADE and not getattr(model, "outlives_people", False):
            model._base_manager.filter(**{relation.field.name: user}).delete()
