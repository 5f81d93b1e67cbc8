"""Lists and single things as a table, tab-separated values, JSON, YAML or names."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, Callable, TypeVar

import click

from bai.sdk.nouns import Noun

F = TypeVar("F", bound=Callable[..., Any])
Value = Callable[[Any], Any]
Columns = Sequence[tuple[str, Value]]  # headings, and the value of a row; * before it: with -o wide only
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BINARY = ("B", "K", "M", "G", "T", "P")
_PLAIN_SCALAR = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ")
_YAML_WORDS = {"", "true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}


def clean(text: str) -> str:
    """Return a text without what commands a terminal. Lines and tabs stay."""
    return _CONTROLS.sub(" ", text)


def columns(names: str, **values: Value) -> Columns:
    """Return columns by the names of fields; ``values`` are those that are made of others."""
    keys = [(name, name.lstrip("*")) for name in names.split()]
    return [(name.replace("_", " "), values.get(key) or partial(_field, key=key)) for name, key in keys]


def _field(row: Any, key: str) -> Any:
    return getattr(row, key) if isinstance(row, Noun) else row[key]


def listing(function: F) -> F:
    """Give a command -o and -q."""
    formats = click.Choice(["table", "wide", "tsv", "json", "yaml", "name"])
    text = "How to write it; a pipe gets tsv instead of table."
    function = click.option("-o", "--output", "output", type=formats, default="table", help=text)(function)
    return click.option("-q", "--quiet", is_flag=True, help="IDs only.")(function)


def show(rows: Iterable[Any], columns: Columns, *, output: str = "table", quiet: bool = False) -> None:
    """Write many rows, which are nouns or dictionaries."""
    rows = list(rows)
    if quiet or output == "name":
        key = "id" if quiet else "name"
        for row in rows:
            click.echo(_text(_body(row).get(key) or _body(row).get("id", "")))
    elif output in ("json", "yaml"):
        dump([dict(_body(row)) for row in rows], output)
    else:
        shown = [column for column in columns if output == "wide" or not column[0].startswith("*")]
        table = [[heading.lstrip("*").upper() for heading, _ in shown]]
        table += [[_text(value(row)) for _, value in shown] for row in rows]
        _write(table, as_table=output == "wide" or (output == "table" and sys.stdout.isatty()))


def show_one(row: Any, lines: Columns, *, output: str = "table", quiet: bool = False) -> None:
    """Write one thing: a line for each value that it has."""
    if quiet or output == "name":
        show([row], (), output=output, quiet=quiet)
    elif output in ("json", "yaml"):
        dump(dict(_body(row)), output)
    else:
        told = [(heading.lstrip("*"), _text(value(row))) for heading, value in lines]
        _write([[heading, text] for heading, text in told if text], as_table=sys.stdout.isatty())


def dump(value: Any, output: str) -> None:
    """Write a value of JSON."""
    text = "\n".join(yaml_lines(value)) if output == "yaml" else json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def yaml_lines(value: Any, indent: str = "") -> list[str]:
    """Return a value of JSON as YAML."""
    if isinstance(value, Mapping) and value:
        lines = []
        for key, one in value.items():
            nested = isinstance(one, (Mapping, list)) and one
            deeper = indent + ("  " if isinstance(one, Mapping) else "")
            head = f"{indent}{_scalar(str(key))}:"
            lines += [head, *yaml_lines(one, deeper)] if nested else [f"{head} {_scalar(one)}"]
        return lines
    if isinstance(value, list) and value:
        lines = []
        for one in value:
            first, *rest = yaml_lines(one, indent + "  ")
            lines += [f"{indent}- {first.strip()}", *rest]
        return lines
    return [indent + _scalar(value)]


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = set(value) <= _PLAIN_SCALAR and value[:1].isalpha() and value == value.strip()
    return value if is_plain and value.lower() not in _YAML_WORDS else json.dumps(value, ensure_ascii=False)


def size(value: Any) -> str:
    """Return an amount of bytes in the largest unit that fits."""
    if value is None:
        return ""
    number, unit = float(value), 0
    while number >= 1024 and unit < len(_BINARY) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f}{_BINARY[unit]}" if number == int(number) or number >= 100 else f"{number:.1f}{_BINARY[unit]}"


def amounts(slots: Mapping[str, Any] | None) -> str:
    """Return the amounts of slots in one line."""
    told = {name: size(value) if name == "mem" else value for name, value in (slots or {}).items()}
    return " ".join(f"{name}={value}" for name, value in told.items())


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time is, or in how long it will be."""
    if at is None:
        return ""
    seconds = ((now or datetime.now(timezone.utc)) - at).total_seconds()
    number, unit = abs(seconds), "s"
    for larger, factor in (("m", 60), ("h", 60), ("d", 24)):
        if number < factor:
            break
        number, unit = number / factor, larger
    return f"{number:.0f}{unit}" if seconds >= 0 else f"in {number:.0f}{unit}"


def _body(row: Any) -> Mapping[str, Any]:
    return row.data if isinstance(row, Noun) else row


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return ago(value) if sys.stdout.isatty() else value.isoformat()
    return clean("" if value is None else str(value)).replace("\n", " ").replace("\t", " ")


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _write(table: list[list[str]], *, as_table: bool) -> None:
    if not as_table:
        for row in table:
            click.echo("\t".join(row))
        return
    widths = [max(map(_width, column)) for column in zip(*table)]
    for row in table:
        cells = [text + " " * (width - _width(text)) for text, width in zip(row, widths)]
        click.echo("  ".join(cells).rstrip())
