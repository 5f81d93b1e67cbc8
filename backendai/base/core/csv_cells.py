"""Cells of CSV files that people open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield each row as a line of CSV. The first line begins with a byte-order mark, so that spreadsheets read
    UTF-8."""
    writer = csv.writer(_Echo())
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}"
    for row in rows:
        yield mark + writer.writerow([safe_cell(value) for value in row])
        mark = ""


def safe_cell(value: Any) -> str:
    """Return the value as text that spreadsheets do not treat as a formula; numbers are unchanged."""
    if value is None:
        return ""
    text = str(value)
    if isinstance(value, int | float) or not text.startswith(_FORMULA_STARTS):
        return text
    return f"'{text}"


class _Echo:
    """A file-like object whose ``write`` returns its argument."""

    def write(self, line: str) -> str:
        return line
