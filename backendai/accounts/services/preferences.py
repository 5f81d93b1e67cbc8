"""What people have chosen for pages. It changes nothing for others, so the audit trail does not hear of it."""

from __future__ import annotations

from typing import Any

from backendai.accounts.models import Preference, User
from backendai.accounts.prepared import Prepared

_VALUE = Prepared(
    lambda user_id, name: Preference.objects.filter(user=user_id, name=name).values_list("value", flat=True)[:1]
)


def preference(user: User, name: str) -> Any:
    """Return what the user has chosen, None for what is as usual; one query."""
    return _VALUE.first(user.pk, name)


def choose(user: User, name: str, value: Any) -> None:
    """Keep what the user has chosen; None makes it as usual again."""
    if value is None:
        Preference.objects.filter(user=user, name=name).delete()
    else:
        Preference.objects.update_or_create(user=user, name=name, defaults={"value": value})
