"""Searches rows by the words of their messages, as a reader sees them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import get_language, override

from backendai.base.texts.messages import in_words

MOST_READ = 1000
_ENGLISH = "en"


def rows_that_say(
    rows: QuerySet[Any], wanted: str, messages_of: Callable[[Any], Iterable[object]], *, most: int = MOST_READ
) -> QuerySet[Any]:
    """Return the rows with a message that contains ``wanted`` in the reader's language or in English.

    Messages are stored as templates and values, which a database cannot search as sentences. So this reads the newest
    ``most`` rows, with one query, and renders their messages. Case is ignored.
    """
    read, searched, found = list(rows.order_by("-pk")[:most]), _comparable(wanted), set()
    for language in {get_language() or _ENGLISH, _ENGLISH}:
        with override(language):
            found |= {
                row.pk
                for row in read
                if row.pk not in found and any(searched in _comparable(in_words(text)) for text in messages_of(row))
            }
    return rows.filter(pk__in=found)


def _comparable(text: str) -> str:
    """Return the text without case, invisible marks of direction and kinds of spaces."""
    visible = "".join(letter for letter in unicodedata.normalize("NFKC", text) if unicodedata.category(letter) != "Cf")
    return " ".join(visible.casefold().split())
