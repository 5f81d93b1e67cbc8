"""The command line of a benchmark: options with their defaults, and figures as lines or as one JSON object."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any


def command(
    name: str,
    about: str | None,
    numbers: Mapping[str, tuple[float, str]] | None = None,
    *,
    parts: Sequence[str] = (),
    database: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser with ``--json``, ``--only`` where there are parts, ``--database`` where there is a choice, and
    an option for each number, given as its default and its meaning."""
    parser = argparse.ArgumentParser(prog=f"bin/bench {name}", description=about)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    if parts:
        parser.add_argument("--only", choices=parts, nargs="+", default=parts, help="measure these parts alone")
    if database:
        parser.add_argument("--database", choices=("postgres", "sqlite"), default="sqlite")
    for option, (default, meaning) in (numbers or {}).items():
        told = f"--{option.replace('_', '-')}"
        parser.add_argument(told, type=type(default), default=default, metavar="N", help=f"{meaning} ({default})")
    return parser


def show(options: argparse.Namespace, figures: Mapping[str, Any], goals: Mapping[str, float] | None = None) -> None:
    """Print figures as ``--json`` asks for; those of a part, such as a page, have a line each."""
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        goal = f"  goal {goals[name]}" if goals and name in goals else ""
        for part, figure in value.items() if isinstance(value, dict) else [("", value)]:
            print(f"{name:32} {part:24} {figure!s:>10}{goal}")
