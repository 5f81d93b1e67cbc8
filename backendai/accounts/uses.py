"""What still uses a row, so that nobody deletes what others need."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db.models import ForeignKey, Model

from backendai.core.errors import Conflict


def uses_of(row: Model, *, leaving_out: Collection[type[Model]] = ()) -> dict[str, int]:
    """Return how many rows of which kind name this one, by words for people; one query for each kind of row. What is
    only allowed to use it (many to many) does not count."""
    uses: dict[str, int] = {}
    for relation in row._meta.related_objects:
        model: Any = relation.related_model
        if not isinstance(relation.field, ForeignKey) or model in leaving_out or model._meta.auto_created:
            continue
        number = model._base_manager.filter(**{relation.field.name: row}).count()
        if number:
            words = model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural
            uses[str(words)] = uses.get(str(words), 0) + number
    return uses


def refuse_while_used(row: Model, kind: str, *, leaving_out: Collection[type[Model]] = ()) -> None:
    """Raise a Conflict that counts what uses the row, if anything does."""
    if uses := uses_of(row, leaving_out=leaving_out):
        text = ", ".join(f"{number:,} {words}" for words, number in uses.items())
        raise Conflict(
            f"{str(row)!r} cannot be deleted: {text} belong to it. Deactivate it instead: nobody starts anything in it "
            "then, and what was done in it stays known.",
            code=f"{kind}-in-use",
            used_by={words.replace(" ", "-"): number for words, number in uses.items()},
        )
