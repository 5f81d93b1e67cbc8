"""Pages of long lists: what is skipped is skipped by its keys, and nothing is counted that is known or beyond use."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

MOST_COUNTED = 1_000


class LongPaginator(Paginator):
    """Pages of ``rows``, which may join whatever they show; ``keys`` are the same rows in the same order without it.

    ``number``: how many there are, if that is known; else they are counted up to ``MOST_COUNTED``, and pages end there.
    """

    def __init__(self, rows: QuerySet[Any], keys: QuerySet[Any], per_page: int, number: int | None = None) -> None:
        super().__init__(rows, per_page)
        self._keys = keys
        found = keys.order_by()[: MOST_COUNTED + 1].count() if number is None else number
        self.is_cut = number is None and found > MOST_COUNTED
        self.__dict__["count"] = MOST_COUNTED if self.is_cut else found

    def page(self, number: int | str) -> Page:
        """Return one page; its rows are read when they are looked at, in one query."""
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        keys = self._keys.values("pk")[first : min(first + self.per_page, self.count)]
        return self._get_page(self.object_list.filter(pk__in=keys), number, self)  # type: ignore[attr-defined]
