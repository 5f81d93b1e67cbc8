"""The language of the pages, chosen by a user."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Preference, User
from backendai.domain.activity.services import audit


def choose_language(user: User, language: str) -> None:
    """Save the language of all pages for this user; empty: the browser's language.

    Raises UserError for an unknown one.
    """
    if language and language not in dict(settings.LANGUAGES):
        known = ", ".join(code for code, _ in settings.LANGUAGES)
        raise UserError(
            "Unknown language {language}: choose one of {known}.",
            language=repr(language[:8]),
            known=known,
            field="language",
            code="no-language",
        )
    if user.language == language:
        return
    with transaction.atomic():
        User.objects.filter(pk=user.pk).update(language=language)
        audit(user.pk, "user.choose-language", "user", [user.pk], language=language)
    user.language = language


def _value(user_id: Any, name: Any) -> QuerySet[Any, Any]:
    return Preference.objects.filter(user=user_id, name=name).values_list("value", flat=True)[:1]


def preference(user: User, name: str) -> Any:
    """Return the value that the user has chosen, or None for the default; one query."""
    return next(iter(_value(user.pk, name)), None)


def choose(user: User, name: str, value: Any) -> None:
    """Save the user's value; None restores the default."""
    if value is None:
        Preference.objects.filter(user=user, name=name).delete()
    else:
        Preference.objects.update_or_create(user=user, name=name, defaults={"value": value})
