"""The scopes of access tokens. Logins and signed requests have every scope."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message


class Scope(StrEnum):
    """A right of an access token. Every token has ``read``."""

    READ = "read"
    SESSIONS = "sessions"
    FOLDERS = "folders"
    ACCOUNT = "account"
    ADMIN = "admin"


WORDS = {
    Scope.READ: Message("read everything that you may see"),
    Scope.SESSIONS: Message("launch, use and end sessions"),
    Scope.FOLDERS: Message("create, share, change and delete folders and their files"),
    Scope.ACCOUNT: Message("change your account: tokens, SSH keys, dotfiles"),
    Scope.ADMIN: Message("administer, within your role"),
}


def all_scopes() -> list[str]:
    """Return every scope. Tokens without named scopes have them all."""
    return [scope.value for scope in Scope]


def clean_scopes(wanted: Collection[str], *, field: str = "scopes") -> list[str]:
    """Return these scopes and ``read``, without duplicates and in the standard order.

    Raises UserError at ``field`` for an unknown scope.
    """
    if wrong := sorted(set(wanted) - set(all_scopes())):
        known = ", ".join(all_scopes())
        raise UserError(
            "Unknown scope {wrong}: choose one of {known}.",
            wrong=repr(wrong[0][:32]),
            known=known,
            field=field,
            code="no-scope",
        )
    return [scope for scope in all_scopes() if scope in wanted or scope == Scope.READ]
