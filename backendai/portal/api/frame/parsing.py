"""Parses request bodies strictly: a limited size, only known fields, and errors that name their field."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, TypeVar

from django.core.validators import MaxValueValidator, MinValueValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ParseError, ValidationError
from rest_framework.parsers import JSONParser
from rest_framework.utils.serializer_helpers import BindingDict

from backendai.base.core.durations import EARLIEST, LATEST, LONGEST, seconds_in
from backendai.base.core.nearest import nearest_to
from backendai.portal.api.frame.errors import BodyTooLarge

B = TypeVar("B", bound=serializers.BaseSerializer[Any])

LARGEST_BODY = 2**20
_LONGEST_AMOUNT = 40
_LONGEST_SLOT = 64
_MOST_UNKNOWN = 20  # errors; 60,000 in one body took 160 MB
_MOST_ITEMS = 10_000  # as many as a run has elements; each wrong one is an error of 1.5 KB
_LARGEST_INTEGER, _LARGEST_FLOAT = 2**31 - 1, 1e15


class StrictJSONParser(JSONParser):
    """Parses JSON of at most ``largest`` bytes."""

    largest = LARGEST_BODY

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """Return the parsed body. Raises ParseError, or BodyTooLarge."""
        content = stream.read(self.largest + 1)
        if len(content) > self.largest:
            raise BodyTooLarge(f"A request may have at most {self.largest} bytes.")
        try:
            return super().parse(BytesIO(content), media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply.") from error


class BoundedSerializer(serializers.Serializer[Any]):
    """What a request says, with a limit for each number.

    All instances share the class's fields, which do not depend on the request. Copying them for each request took
    longer than parsing it.
    """

    @property
    def fields(self) -> BindingDict:
        """The fields by name."""
        return _fields_of(type(self), self.partial)


class StrictSerializer(BoundedSerializer):
    """A request body that rejects unknown fields by name."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values. Raises ValidationError that names every invalid field."""
        if isinstance(data, Mapping):
            refuse_unknown(data, self.fields)
        return super().to_internal_value(data)


def refuse_unknown(data: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ValidationError that names the unknown fields of a body, with the closest known ones; at most 20."""
    names = sorted(known)
    text = f"Unknown field. Known fields: {', '.join(names)}."
    unknown = [name for name in data if name not in known][:_MOST_UNKNOWN]
    if unknown:
        raise ValidationError(
            {one: [ErrorDetail(_nearest(str(one), names) or text, "unknown-field")] for one in unknown}
        )


def body_of(kind: type[B], data: Any, *, partial: bool = False) -> B:
    """Return the validated body of a request. Raises ValidationError that names every invalid field."""
    body = kind(data=data, partial=partial)
    body.is_valid(raise_exception=True)
    return body


def values_of(kind: type[serializers.BaseSerializer[Any]], data: Any, *, partial: bool = False) -> dict[str, Any]:
    """Return the validated values of a body or query; of a partial one, those in it. Raises ValidationError."""
    return dict(body_of(kind, data, partial=partial).validated_data)


def _nearest(name: str, known: list[str]) -> str:
    near = nearest_to(name, known)
    return f"Unknown field; use {near}." if near else ""


@cache
def _fields_of(kind: type[BoundedSerializer], partial: bool) -> BindingDict:
    owner = kind(partial=partial)  # which its fields ask
    fields = BindingDict(owner)
    for name, field in owner.get_fields().items():
        _limit(field)
        fields[name] = field
    return fields


def _limit(field: Any) -> None:
    """Give numbers and lists without a limit of their own a general one: a JSON number can be 1e400, and a text NaN."""
    if hasattr(field, "run_child_validation"):  # a validator would come after the items
        field.run_child_validation = _few(field.run_child_validation)
    if isinstance(field, serializers.FloatField):
        field.validators.append(_check_finite)
    limits: dict[Any, float] = {serializers.IntegerField: _LARGEST_INTEGER, serializers.FloatField: _LARGEST_FLOAT}
    most = limits.get(type(field))
    if most is not None and field.max_value is None:
        field.max_value = most
        field.validators.append(MaxValueValidator(most, "Write at most %(limit_value)s."))
    if most is not None and field.min_value is None:
        field.min_value = -most
        field.validators.append(MinValueValidator(-most, "Write at least %(limit_value)s."))
    if (child := getattr(field, "child", None)) is not None:
        _limit(child)


def _few(validate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def validated(items: Any) -> Any:
        if len(items) > _MOST_ITEMS:
            raise ValidationError(f"Give at most {_MOST_ITEMS} items.", "too-many-items")
        return validate(items)

    return validated


def _check_finite(value: float) -> None:
    if not math.isfinite(value):
        raise ValidationError("Write a finite number.", "invalid")


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}]})
class AmountField(serializers.Field[Any, Any, Any, Any]):
    """An amount: a number or a text such as ``"512m"``. ``core.slots`` validates it."""

    default_error_messages = {"invalid": 'Write a number or a text such as "512m".'}

    def to_internal_value(self, data: Any) -> int | float | str:
        """Return the number or text unchanged.

        Raises ValidationError for other types, and for texts that are too long.
        """
        if isinstance(data, bool) or not isinstance(data, int | float | str) or len(str(data)) > _LONGEST_AMOUNT:
            self.fail("invalid")
        return data

    def to_representation(self, value: Any) -> str:
        """Return the amount as text."""
        return str(value)


class AmountsField(serializers.DictField):
    """Slot names with their amounts."""

    child = AmountField()
    _slot_name = serializers.CharField(max_length=_LONGEST_SLOT)

    def run_child_validation(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the amounts by slot. Raises ValidationError that names the slot."""
        named = {self._slot_name.run_validation(slot): amount for slot, amount in data.items()}
        return super().run_child_validation(named)


class MomentField(serializers.DateTimeField):
    """A time that a request names, between 1970 and 3000: it can be moved and shown in any zone."""

    default_error_messages = {"range": "Write a time between 1970 and 3000."}

    def to_internal_value(self, value: Any) -> datetime:
        """Return the time. Raises ValidationError."""
        moment: datetime = super().to_internal_value(value)
        if not EARLIEST <= moment < LATEST:
            self.fail("range")
        return moment


class DayField(serializers.DateField):
    """A day that a request names, between 1970 and 3000."""

    default_error_messages = {"range": "Write a day between 1970 and 3000."}

    def to_internal_value(self, value: Any) -> date:
        """Return the day. Raises ValidationError."""
        day: date = super().to_internal_value(value)
        if not EARLIEST.date() <= day < LATEST.date():
            self.fail("range")
        return day


class LengthField(serializers.DurationField):
    """A duration: ``"90s"``, ``"15m"``, ``"2h"``, ``"1d"``, seconds, or hh:mm:ss, in which it is answered."""

    default_error_messages = {"invalid": "Write a duration such as 90s, 15m, 2h or 1d, seconds, or hh:mm:ss."}

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_value": LONGEST, "min_value": -LONGEST} | options)

    def to_internal_value(self, value: Any) -> timedelta:
        """Return the duration. Raises ValidationError."""
        seconds = seconds_in(value)
        if seconds is None:
            return super().to_internal_value(value)
        try:
            return timedelta(seconds=seconds)
        except OverflowError:
            self.fail("invalid")
