"""Pages of long lists. Skips rows by their keys, and avoids counting all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.core.paginator import Page, Paginator
from django.db import connection
from django.db.models import QuerySet

MOST_COUNTED = 1_000


class SortedKeys:
    """The keys of a queryset's first rows, in another order.

    Django's own way, a filter by these keys, makes the database look up each row a second time.
    """

    def __init__(self, rows: QuerySet[Any], most: int, order: Sequence[str]) -> None:
        columns = list(dict.fromkeys(["pk", *(name.lstrip("-") for name in order)]))
        self._first = rows.values_list(*columns)[:most]
        self._order = ", ".join(
            f"{columns.index(name.lstrip('-')) + 1} {'DESC' if name.startswith('-') else 'ASC'}" for name in order
        )

    def __getitem__(self, part: slice) -> list[Any]:
        """Return this slice of the keys, in one query."""
        start = part.start or 0
        try:
            first, given = self._first.query.sql_with_params()
        except EmptyResultSet:
            return []
        sql = f"SELECT * FROM ({first}) AS first_rows ORDER BY {self._order} LIMIT %s OFFSET %s"  # noqa: S608
        with connection.cursor() as cursor:
            cursor.execute(sql, [*given, max(0, part.stop - start), start])
            to_key = self._first.model._meta.pk.to_python
            return [to_key(key) for key, *_ in cursor.fetchall()]


class LongPaginator(Paginator):
    """Pages of rows in the order of ``keys``; ``read`` returns the rows of some keys.

    ``number``: the number of rows, if known. Otherwise the first ``MOST_COUNTED`` are counted once, and the pages end
    there.
    """

    def __init__(
        self,
        read: Callable[[list[Any]], list[Any]],
        keys: QuerySet[Any, Any] | SortedKeys,
        per_page: int,
        number: int | None = None,
    ) -> None:
        super().__init__((), per_page)
        self._read = read
        self._keys = keys
        self._found = list(self._keys[: MOST_COUNTED + 1]) if number is None else None
        self.is_cut = self._found is not None and len(self._found) > MOST_COUNTED
        self.count = number if number is not None else min(MOST_COUNTED, len(self._found or ()))

    def page(self, number: int | str) -> Page:
        """Return one page with its rows."""
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        part = slice(first, min(first + self.per_page, self.count))
        keys = list(self._keys[part] if self._found is None else self._found[part])
        return Page(self._read(keys), number, self)
