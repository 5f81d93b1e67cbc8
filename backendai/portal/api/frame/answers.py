"""Serializers of rows in answers.

REST framework computes the fields of a body for each request, and queries each field's settings for each row. These
prepare the reader of each field once for the class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from django.db.models import Model
from django.utils import timezone
from rest_framework import serializers

M = TypeVar("M", bound=Model)
Reader = Callable[[Any, Any], Any]  # the body and the row → what is shown

_AS_STORED = (
    serializers.BooleanField,
    serializers.CharField,
    serializers.ChoiceField,
    serializers.FloatField,
    serializers.IntegerField,
    serializers.JSONField,
)


class Answer(serializers.ModelSerializer[M]):
    """A read-only serializer. Nested ones have no access to the request."""

    def to_representation(self, instance: M) -> dict[str, Any]:
        """Return the row's values by field, as JSON values."""
        return {name: read(self, instance) for name, read in _readers(type(self))}


@cache
def _readers(kind: type[Answer[Any]]) -> list[tuple[str, Reader]]:
    return [(name, _reader(field)) for name, field in kind().fields.items()]


def _reader(field: Any) -> Reader:
    """Return a function that reads the field's value from a row.

    The common kinds of fields have fast readers; others use their own representation.
    """
    if isinstance(field, serializers.SerializerMethodField):
        method = str(field.method_name)
        return lambda body, row: getattr(body, method)(row)
    value = attrgetter(field.source)
    if isinstance(field, _AS_STORED):
        return lambda _, row: value(row)
    if isinstance(field, serializers.SlugRelatedField):
        slug = attrgetter(str(field.slug_field))
        return lambda _, row: None if (related := value(row)) is None else slug(related)
    show = _moment if isinstance(field, serializers.DateTimeField) else field.to_representation
    return lambda _, row: None if (shown := value(row)) is None else show(shown)


def _moment(value: Any) -> str:
    return str(value.astimezone(timezone.get_default_timezone()).isoformat().replace("+00:00", "Z"))
