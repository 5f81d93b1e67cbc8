"""Key pairs: a public access key, and a secret that signs requests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.core.names import clean_line
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.roles import Action, check_user
from backendai.domain.accounts.secret_box import seal
from backendai.domain.accounts.services.grants import check_policy_of_user
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit

MOST_PAIRS = 10
LONGEST_NAME = 64


def main_key_pair(user: User) -> KeyPair | None:
    """Return the key pair of the user's browser sessions: the main one, else the oldest active one."""
    found: KeyPair | None = KeyPair.objects.visible_to(user).main_first().first()
    return found


def create_key_pair(user: User, name: str) -> tuple[KeyPair, str]:
    """Create a key pair; return it and its secret, which is shown once."""
    name = _name(name)
    secret = secrets.token_urlsafe(30)
    with transaction.atomic():
        if KeyPair.objects.visible_to(user).count() >= MOST_PAIRS:
            raise Conflict(
                "You have {most_pairs} key pairs already; delete one.", most_pairs=MOST_PAIRS, code="too-many-key-pairs"
            )
        pair = KeyPair.objects.create(user=user, name=name, secret=seal(secret))
        audit(user.pk, "key-pair.create", "key-pair", [pair.pk], name=name)
    return pair, secret


def rotate_secret(user: User, access_key: str) -> tuple[KeyPair, str]:
    """Replace the secret of a key pair; return both. Requests signed with the old secret are refused."""
    secret = secrets.token_urlsafe(30)
    with transaction.atomic():
        pair = own_key_pair(user, access_key)
        pair.secret = seal(secret)
        pair.save(update_fields=["secret"])
        audit(user.pk, "key-pair.rotate", "key-pair", [pair.pk])
    return pair, secret


def change_key_pair(
    user: User, access_key: str, *, name: str | None = None, is_active: bool | None = None, is_main: bool | None = None
) -> KeyPair:
    """Change the values of a key pair that are not None, and return it.

    The main key pair cannot be deactivated; make another one the main one first.
    """
    with transaction.atomic():
        pair = own_key_pair(user, access_key)
        if name is not None:
            pair.name = _name(name)
        if is_active is not None:
            pair.is_active = is_active
        if is_main is not None:
            _make_main(user, pair, is_main)
        if not pair.is_active:
            _check_other_main(user, pair)
        pair.save(update_fields=["name", "is_active", "is_main"])
        audit(user.pk, "key-pair.change", "key-pair", [pair.pk], is_active=pair.is_active, is_main=pair.is_main)
    return pair


def remove_key_pair(user: User, access_key: str) -> None:
    """Delete a key pair of the user, except the main one. The caller must check that no session uses it."""
    with transaction.atomic():
        pair = own_key_pair(user, access_key)
        _check_other_main(user, pair)
        audit(user.pk, "key-pair.delete", "key-pair", [pair.pk])
        pair.delete()


def limit_key_pair(actor: User, pair: KeyPair, wishes: Mapping[str, Any]) -> KeyPair:
    """Change ``policy`` (None: no limits) and ``rate_limit`` (0: none) of a key pair, as far as ``wishes`` has them.

    Raises NotAllowed if the actor may not set the user's policy, or if the policy exceeds the actor's own.
    """
    check_user(actor, Action.SET_USER_POLICY, pair.user)
    if "policy" in wishes:
        check_policy_of_user(actor, wishes["policy"])
    changes = {
        name: [plain_value(getattr(pair, name)), plain_value(wishes[name])]
        for name in ("policy", "rate_limit")
        if name in wishes and getattr(pair, name) != wishes[name]
    }
    if changes:
        with transaction.atomic():
            for name in changes:
                setattr(pair, name, wishes[name])
            pair.save(update_fields=list(changes))
            audit(actor.pk, "key-pair.limit", "key-pair", [pair.pk], owner=pair.user.email, changes=changes)
    return pair


def own_key_pair(user: User, access_key: str) -> KeyPair:
    """Return a key pair of the user, locked until the transaction ends.

    Raises NotFound if the user has no such pair.
    """
    found: KeyPair | None = KeyPair.objects.visible_to(user).select_for_update().filter(pk=access_key).first()
    if found is None:
        raise NotFound("Key pair not found.")
    return found


def _name(name: str) -> str:
    name = clean_line(name, longest=LONGEST_NAME)
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UserError(
            "Give the key pair a name of 1 to {longest_name} characters.",
            longest_name=LONGEST_NAME,
            field="name",
            code="invalid-name",
        )
    return name


def _make_main(user: User, pair: KeyPair, is_main: bool) -> None:
    if is_main and not pair.is_active:
        raise Conflict("An inactive key pair cannot be the main one.", field="is_main", code="key-pair-inactive")
    if is_main:
        KeyPair.objects.visible_to(user).filter(is_main=True).exclude(pk=pair.pk).update(is_main=False)
    pair.is_main = is_main


def _check_other_main(user: User, pair: KeyPair) -> None:
    main = main_key_pair(user)
    if main is not None and main.pk == pair.pk:
        raise Conflict(
            "Your sessions from the browser count against this key pair; make another one the main one first.",
            field="is_active",
            code="main-key-pair",
        )
