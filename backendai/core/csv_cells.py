"""Text for cells of CSV files that people open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield each row as one line of CSV, a byte-order mark before the first so that spreadsheets read UTF-8."""
    writer = csv.writer(_Echo())
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}"
    for row in rows:
        yield mark + writer.writerow([safe_cell(value) for value in row])
        mark = ""


def safe_cell(value: Any) -> str:
    """Return the value as text that no spreadsheet takes for a formula; numbers stay as they are."""
    if value is None:
        return ""
    text = str(value)
    if isinstance(value, int | float) or not text.startswith(_FORMULA_STARTS):
        return text
    return f"'{text}"


class _Echo:
    """Gives each line back instead of keeping it."""

    def write(self, line: str) -> str:
        return line
