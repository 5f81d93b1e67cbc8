"""Pages of long lists: what is skipped is skipped by its keys, and nothing is counted that is known or beyond use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

MOST_COUNTED = 1_000


class LongPaginator(Paginator):
    """Pages of rows in the order of ``keys``, which join nothing; ``read`` returns the rows of some keys, with whatever
    is shown of them.

    ``number``: how many there are, if that is known. Else the first ``MOST_COUNTED`` are looked for, once, and pages
    end there.
    """

    def __init__(
        self, read: Callable[[list[Any]], list[Any]], keys: QuerySet[Any], per_page: int, number: int | None = None
    ) -> None:
        super().__init__(keys, per_page)
        self._read = read
        self._keys = keys.values_list("pk", flat=True)
        self._found = list(self._keys[: MOST_COUNTED + 1]) if number is None else None
        self.is_cut = self._found is not None and len(self._found) > MOST_COUNTED
        known = min(MOST_COUNTED, len(self._found)) if self._found is not None else number
        self.__dict__["count"] = known

    def page(self, number: int | str) -> Page:
        """Return one page with its rows."""
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        part = slice(first, min(first + self.per_page, self.count))
        keys = list(self._keys[part] if self._found is None else self._found[part])
        return self._get_page(self._read(keys), number, self)  # type: ignore[attr-defined]
