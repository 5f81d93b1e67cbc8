"""Querysets whose SQL is compiled once for each process.

For Django, building a filter and compiling it takes several times as long as the database needs to answer: two fifths
of a page. Only the SQL is kept. Each call fetches the rows anew, so no shown data can be old.
"""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model, QuerySet
from django.db.transaction import TransactionManagementError

T = TypeVar("T")


class Prepared(Generic[T]):
    """A queryset with arguments, whose SQL is compiled once.

    Arguments are ids, numbers, texts, and rows, of which only keys and fields with choices may be used. Any other use
    raises an error at the first call. Values such as the time must be arguments too.
    """

    def __init__(self, build: Callable[..., QuerySet[Any, T]]) -> None:
        self._build = build
        self._statements: dict[Hashable, _Statement | None] = {}

    def rows(self, *given: Any) -> list[T]:
        """Return the current rows of the queryset for these arguments, in one query."""
        parts = _Parts(given)
        if parts.shape not in self._statements:
            self._statements[parts.shape] = self._put_together(parts)
        statement = self._statements[parts.shape]
        return [] if statement is None else statement.run(parts.values)

    def first(self, *given: Any) -> T | None:
        """Return the first row or None; the queryset should be limited to one row."""
        return next(iter(self.rows(*given)), None)

    def _put_together(self, parts: _Parts) -> _Statement | None:
        """Return the compiled statement; None if no row can match.

        Compiles twice with different stand-ins to find where the arguments are.
        """
        try:
            one, other = (_made(self._build, parts) for _ in range(2))
        except EmptyResultSet:
            return None
        if one.sql != other.sql:
            raise TypeError(f"the words of a statement change with what is given: {one.sql}")
        places = []
        pairs = list(zip(one.stand_ins, other.stand_ins, strict=True))
        for number, pair in enumerate(zip(one.parameters, other.parameters, strict=True)):
            if pair in pairs:
                places.append((number, pairs.index(pair), type(pair[0])))
            elif getattr(pair[0], "obj", pair[0]) != getattr(pair[1], "obj", pair[1]):  # psycopg wraps JSON
                raise TypeError(f"parameter {number} is neither given nor always the same: {one.sql}")
        return _Statement(one.rows, one.compiler, one.sql, one.parameters, places)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A compiled statement.

    ``places``: the number of each parameter, the index of its value, and the type that the driver needs.
    """

    queryset: Any
    compiler: Any
    sql: str
    parameters: Sequence[Any]
    places: Sequence[tuple[int, int, type]]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run the statement with these values, and return its rows as the queryset would."""
        database = connections[DEFAULT_DB_ALIAS]
        if self.compiler.query.select_for_update and database.get_autocommit():
            raise TransactionManagementError("rows are held still until a transaction ends: there is none")
        native = database.features.has_native_uuid_field
        parameters = list(self.parameters)
        for number, place, kind in self.places:
            value = values[place]
            if isinstance(value, uuid.UUID) and not native:
                value = value.hex
            parameters[number] = value if isinstance(value, kind) else kind(value)
        compiler = copy.copy(self.compiler)
        compiler.connection = database
        compiler.as_sql = lambda *_, **__: (self.sql, parameters)
        rows: Any = self.queryset._iterable_class(_Asked(self.queryset, compiler))
        return list(rows)


class _Asked:
    """The attributes of a queryset and its query that Django's row iterator reads."""

    _known_related_objects: Mapping[Any, Any] = MappingProxyType({})

    def __init__(self, queryset: Any, compiler: Any) -> None:
        self.model, self.query, self.db = queryset.model, self, DEFAULT_DB_ALIAS
        self._fields, self._compiler = queryset._fields, compiler

    def get_compiler(self, *_: Any, **__: Any) -> Any:
        """Return the compiler of the statement."""
        return self._compiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler.query, name)


class _Parts:
    """The arguments taken apart:

    ``values`` may change without another statement. ``shape`` is the rest, and which of the values are equal.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self.given = given
        self.values: list[Any] = []
        self._places: dict[Hashable, int] = {}
        self.shape = tuple([part for one in given for part in self._parts_of(one)])

    def with_values(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments with these values instead of their own."""
        return [self._like(one, values) for one in self.given]

    def _parts_of(self, one: Any) -> Iterator[Hashable]:
        if isinstance(one, Model):
            model: Any = one._meta.concrete_model
            keys, choices = _columns_of(model)
            yield model
            yield from [getattr(one, name) for name in choices]
            yield from [self._place_of(target, getattr(one, name)) for name, target in keys]
        elif _is_value(one):
            yield self._place_of(type(one), one)
        else:
            yield object, one  # a word of the statement

    def _place_of(self, kind: Any, value: Any) -> Hashable:
        if value is None:
            return None
        name = (kind, value)
        if name not in self._places:
            self._places[name] = len(self.values)
            self.values.append(value)
        return kind, self._places[name]

    def _like(self, one: Any, values: Sequence[Any]) -> Any:
        if isinstance(one, Model):
            model: Any = one._meta.concrete_model
            keys, choices = _columns_of(model)
            known = {name: getattr(one, name) for name in choices}
            for name, target in keys:
                value = getattr(one, name)
                known[name] = None if value is None else values[self._places[target, value]]
            names = [field.attname for field in model._meta.concrete_fields if field.attname in known]
            # Of everything else it knows nothing: anyone who asks for that hears that there is no such row.
            return model.from_db(DEFAULT_DB_ALIAS, names, [known[name] for name in names])
        return values[self._places[type(one), one]] if _is_value(one) else one


class _Made(NamedTuple):
    rows: Any
    compiler: Any
    sql: str
    parameters: Sequence[Any]
    stand_ins: Sequence[Any]


def _made(build: Callable[..., QuerySet[Any, Any]], parts: _Parts) -> _Made:
    """Return a statement compiled with stand-ins, and the stand-ins as the database gets them."""
    stand_ins = [_stand_in(value) for value in parts.values]
    rows: Any = build(*parts.with_values(stand_ins))
    if rows._prefetch_related_lookups:
        raise TypeError("what further queries bring along is no part of a statement")
    compiler: Any = rows.query.get_compiler(DEFAULT_DB_ALIAS)
    sql, parameters = compiler.as_sql()
    native = compiler.connection.features.has_native_uuid_field
    known = [one if native or not isinstance(one, uuid.UUID) else one.hex for one in stand_ins]
    compiler.connection = None  # each thread has its own
    return _Made(rows, compiler, sql, tuple(parameters), known)


def _stand_in(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return uuid.uuid4()
    if isinstance(value, int):
        return random.randrange(2**30, 2**31)
    return f"stand-in-{uuid.uuid4()}"  # no UUID: as the text of one it would not be known again


def _is_value(one: Any) -> bool:
    return isinstance(one, uuid.UUID | str | int) and not isinstance(one, bool)


@cache
def _columns_of(model: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """Return the key columns of a model with the models they refer to, and its columns with choices."""
    fields = model._meta.concrete_fields
    keys = [
        (field.attname, field.related_model or model) for field in fields if field.primary_key or field.related_model
    ]
    return keys, [field.attname for field in fields if field.choices and not field.related_model]
