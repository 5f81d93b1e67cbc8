"""Pages of long lists: what is skipped is skipped by its keys, and nothing is counted that is known or beyond use."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

MOST_COUNTED = 1_000


class LongPaginator(Paginator):
    """Pages of ``rows``, which may join whatever they show; ``keys`` are the same rows in the same order without it.

    ``number``: how many there are, if that is known. Else the first ``MOST_COUNTED`` are looked for, once, and pages
    end there.
    """

    def __init__(self, rows: QuerySet[Any], keys: QuerySet[Any], per_page: int, number: int | None = None) -> None:
        super().__init__(rows, per_page)
        self._keys = keys.values_list("pk", flat=True)
        self._found = list(self._keys[: MOST_COUNTED + 1]) if number is None else None
        self.is_cut = self._found is not None and len(self._found) > MOST_COUNTED
        known = min(MOST_COUNTED, len(self._found)) if self._found is not None else number
        self.__dict__["count"] = known

    def page(self, number: int | str) -> Page:
        """Return one page; its rows are read when they are looked at, in one query."""
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        part = slice(first, min(first + self.per_page, self.count))
        keys = self._keys[part] if self._found is None else self._found[part]
        return self._get_page(self.object_list.filter(pk__in=keys), number, self)  # type: ignore[attr-defined]
