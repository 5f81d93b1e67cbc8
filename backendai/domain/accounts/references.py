"""Counts the rows that refer to a row, so that used rows are not deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db.models import ForeignKey, Model

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message


def uses_of(row: Model, *, leaving_out: Collection[type[Model]] = ()) -> dict[str, int]:
    """Return how many rows refer to this one, by the name of their kind.

    One query for each kind. Many-to-many relations do not count.
    """
    uses: dict[str, int] = {}
    for model, number in counted_uses(row, leaving_out=leaving_out).items():
        words = words_for(model, number)
        uses[words] = uses.get(words, 0) + number
    return uses


def counted_uses(row: Model, *, leaving_out: Collection[type[Model]] = ()) -> dict[type[Model], int]:
    """Return how many rows refer to this one, by model."""
    uses: dict[type[Model], int] = {}
    for relation in row._meta.related_objects:
        model: Any = relation.related_model
        if not isinstance(relation.field, ForeignKey) or model in leaving_out or model._meta.auto_created:
            continue
        number = model._base_manager.filter(**{relation.field.name: row}).count()
        if number:
            uses[model] = uses.get(model, 0) + number
    return uses


def words_for(model: type[Model], number: int) -> str:
    """Return the name of this kind of row, singular or plural."""
    return str(model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural)


def refuse_while_used(row: Model, kind: str, *, leaving_out: Collection[type[Model]] = ()) -> None:
    """Raise Conflict that counts the rows that refer to this one, if there are any."""
    if uses := uses_of(row, leaving_out=leaving_out):
        parts = [Message("{number} {kind}", number=number, kind=Message(words)) for words, number in uses.items()]
        raise Conflict(
            "{row} cannot be deleted: {text} belong to it. Deactivate it instead: nothing new can start in "
            "it, and its history stays.",
            row=repr(str(row)),
            text=Message.joined(parts, ", "),
            code=f"{kind}-in-use",
            used_by={words.replace(" ", "-"): number for words, number in uses.items()},
        )
