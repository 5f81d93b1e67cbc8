"""Saves the settings of pages that users choose. They affect nobody else, so the audit log does not record them."""

from __future__ import annotations

from typing import Any

from backendai.base.db.prepared import Prepared
from backendai.domain.accounts.models import Preference, User

_VALUE = Prepared(
    lambda user_id, name: Preference.objects.filter(user=user_id, name=name).values_list("value", flat=True)[:1]
)


def preference(user: User, name: str) -> Any:
    """Return the value that the user has chosen, or None for the default; one query."""
    return _VALUE.first(user.pk, name)


def choose(user: User, name: str, value: Any) -> None:
    """Save the user's value; None restores the default."""
    if value is None:
        Preference.objects.filter(user=user, name=name).delete()
    else:
        Preference.objects.update_or_create(user=user, name=name, defaults={"value": value})
