"""Changes a user's address, name, role, domain and limits; activates, deactivates and purges accounts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import CASCADE

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, User
from backendai.domain.accounts.roles import Action, check_domain, check_grant, check_user
from backendai.domain.accounts.rules import check_password, clean_email, clean_full_name
from backendai.domain.accounts.services.grants import check_policy_of_user, check_weight
from backendai.domain.accounts.sign_in.revocation import end_credentials, refuse_to_lose_the_last_superadmin, set_active
from backendai.domain.activity.access_notices import notify_of_access
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit

_NEEDS = {
    "email": Action.CHANGE_USER,
    "full_name": Action.CHANGE_USER,
    "role": Action.SET_ROLE,
    "domain": Action.MOVE_USER,
    "policy": Action.SET_USER_POLICY,
    "share_weight": Action.SET_USER_WEIGHT,
}
_ENDING = {"role", "domain"}
_CLEANED = {"email": clean_email, "full_name": clean_full_name}


def change_user(actor: User, user: User, wishes: Mapping[str, Any], *, now: datetime) -> User:
    """Change the fields of a user that ``wishes`` names, and return the user.

    Fields: ``email``, ``full_name``, ``role``, ``domain``, ``policy`` and ``share_weight``; unchanged values need no
    permission. Another role or domain ends logins and tokens. Raises NotAllowed, Conflict, or UserError that names the
    field, and then saves nothing.
    """
    with transaction.atomic():
        user = User.objects.select_for_update(of=("self",)).select_related("domain", "policy").get(pk=user.pk)
        new = {name: _CLEANED[name](value) if name in _CLEANED else value for name, value in wishes.items()}
        old = {name: getattr(user, name) for name in new}
        changed = [name for name in new if new[name] != old[name]]
        if not changed:
            return user
        _check(actor, user, {name: new[name] for name in changed})
        for name in changed:
            setattr(user, name, new[name])
        user.is_superuser = user.is_superadmin
        _save(user, changed)
        changes = {name: [plain_value(old[name]), plain_value(new[name])] for name in changed}
        audit(actor.pk, "user.change", "user", [user.pk], name=user.email, changes=changes)
        if "role" in changed and user.pk != actor.pk:
            role = Message(User.Role(user.role).label)
            text = Message("{who} gave your account another role: {role}.", who=actor.email, role=role)
            notify_of_access([user.pk], ("user", user.pk), user.email, text, now=now)
        if _ENDING & set(changed):
            end_credentials(user, now=now)
    return user


def _check(actor: User, user: User, new: Mapping[str, Any]) -> None:
    for name in new:
        check_user(actor, _NEEDS[name], user)
    if "role" in new:
        check_grant(actor, new["role"])
        if user.is_superadmin and user.is_active:
            refuse_to_lose_the_last_superadmin(user)
    domain = new.get("domain", user.domain)
    if new.get("role", user.role) == User.Role.ADMIN and domain is None:
        raise UserError("A domain admin needs a domain.", field="domain", code="no-domain")
    if "domain" in new:
        _check_move(actor, user, domain)
    if "policy" in new:
        check_policy_of_user(actor, new["policy"])
    if "share_weight" in new:
        check_weight(new["share_weight"])


def _check_move(actor: User, user: User, domain: Domain | None) -> None:
    check_domain(actor, Action.MOVE_USER, domain)
    left = user.memberships.exclude(project__domain=domain) if domain else user.memberships.all()
    if names := sorted(left.values_list("project__name", flat=True)):
        text = Message(
            "They still belong to {number} projects of the old domain: {names}.", number=len(names), names=names[:5]
        )
        raise Conflict(text, field="domain", code="in-old-projects", number=len(names))


def _save(user: User, changed: list[str]) -> None:
    try:
        with transaction.atomic():
            user.save(update_fields=[*changed, "is_superuser"])
    except IntegrityError as error:
        raise Conflict(
            "An account with this e-mail address already exists.", field="email", code="email-taken"
        ) from error


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
