"""Reads a CSV file of people and checks its columns and lines, without queries."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Membership
from backendai.domain.accounts.rules import check_member_role, clean_email, clean_full_name

COLUMNS = ("email", "full_name", "project", "role", "policy")
LARGEST_FILE = 2**20
MOST_ROWS = 5000
_NEEDED = {"email", "project"}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in one field of a line of the file (the first line is 1)."""

    line: int
    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One person to add to one project.

    ``project`` is its name, or domain/name; an empty text means that the file omits the value.
    """

    line: int
    email: str
    full_name: str
    project: str
    role: str
    policy: str


def read_people(content: bytes) -> tuple[list[Entry], list[Problem]]:
    """Return the readable entries and the problems.

    Raises UserError for a file that is too large, not UTF-8, or has missing or unknown columns.
    """
    if len(content) > LARGEST_FILE:
        raise UserError(
            "The file has {number} bytes; at most {largest_file} are allowed.",
            number=f"{len(content):,}",
            largest_file=f"{LARGEST_FILE:,}",
            field="file",
            code="file-too-large",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("The file is not UTF-8. Save it as “CSV UTF-8”.", field="file", code="not-utf-8") from error
    entries, problems = list[Entry](), list[Problem]()
    seen: dict[tuple[str, str], int] = {}
    for line, row in _rows(text):
        entry, wrong = _entry(line, row)
        problems += wrong
        first = seen.setdefault((entry.email, entry.project), line) if not wrong else line
        if first != line:
            problems.append(
                Problem(line, "email", Message("The same person and project as on line {first}.", first=first))
            )
        else:
            entries.append(entry)
    if not seen and not problems:
        raise UserError("The file lists no people.", field="file", code="empty-file")
    return entries, problems


def _rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    head = text.split("\n", 1)[0]
    delimiter = ";" if head.count(";") > head.count(",") else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = [cell.strip().lower() for cell in next(reader, [])]
        _check_columns(columns)
        number = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            number += 1
            if number > MOST_ROWS:
                raise UserError(
                    "The file has more than {most_rows} people.",
                    most_rows=f"{MOST_ROWS:,}",
                    field="file",
                    code="too-many-rows",
                )
            row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
            yield reader.line_num, row | ({"": "more"} if len(cells) > len(columns) else {})
    except csv.Error as error:
        raise UserError(
            "Line {line}: {error}.", line=reader.line_num, error=error, field="file", code="invalid-csv"
        ) from error


def _check_columns(columns: list[str]) -> None:
    unknown = [name for name in columns if name not in COLUMNS]
    missing = sorted(_NEEDED - set(columns))
    if unknown or missing or len(set(columns)) != len(columns):
        wrong = (
            "missing: " + ", ".join(missing) if missing else Message("unknown or double: ") + ", ".join(unknown)[:100]
        )
        text = Message("The first line must name the columns {columns}; {wrong}.", columns=COLUMNS, wrong=wrong)
        raise UserError(text, field="file", code="wrong-columns")


def _entry(line: int, row: dict[str, str]) -> tuple[Entry, list[Problem]]:
    problems = []
    if "" in row:
        problems.append(Problem(line, "", Message("More cells than columns.")))
    email, name = row.get("email", ""), row.get("full_name", "")
    row["role"] = row.get("role", "").lower() or str(Membership.Role.MEMBER)
    for field, clean in (("email", clean_email), ("full_name", clean_full_name), ("role", check_member_role)):
        try:
            row[field] = clean(row.get(field, ""))
        except UserError as error:
            problems.append(Problem(line, field, error.message))
    if not row.get("project"):
        problems.append(Problem(line, "project", Message("Name the project.")))
    entry = Entry(
        line,
        email=row.get("email", email),
        full_name=row.get("full_name", name),
        project=row.get("project", ""),
        role=row["role"],
        policy=row.get("policy", ""),
    )
    return entry, problems
