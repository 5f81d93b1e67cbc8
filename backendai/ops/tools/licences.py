"""The licences of the installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).resolve().parents[3]
_PINS = _ROOT / "requirements.txt"
_DOCUMENT = _ROOT / "docs" / "licences.md"
_HEAD = """# Licences of the packages used

Made by `bin/licences` from what the packages say about themselves; `bin/test` checks that it is up to date.

| package | version | licence |
|---|---|---|
"""
_LONGEST_NAME = 60
_UNKNOWN = "unknown"


def main(arguments: Sequence[str]) -> int:
    """Write the document of licences, or with ``--check`` compare it; return the exit code."""
    pins = [Requirement(line) for line in _requirement_lines(_PINS)]
    rows = {pin.name: _row(pin) for pin in pins if pin.marker is None or pin.marker.evaluate()}
    faults = [f"{name}: the licence is unknown" for name, row in rows.items() if row.endswith(f"{_UNKNOWN} |")]
    if "--check" in arguments:
        faults += _differences(rows, {pin.name for pin in pins})
    elif not faults:
        _DOCUMENT.parent.mkdir(exist_ok=True)
        _DOCUMENT.write_text(_HEAD + "\n".join(rows.values()) + "\n")
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    return 1 if faults else 0


def licence_of(fields: Mapping[str, str | list[str]]) -> str:
    """Return the licence of a package: the expression, else the classifiers, else a short free text."""
    if expression := fields.get("license_expression"):
        return str(expression)
    prefix = "License :: "
    classified = [text.rpartition(" :: ")[2] for text in fields.get("classifier", []) if text.startswith(prefix)]
    named = [text for text in classified if text != "OSI Approved"]
    if named:
        return ", ".join(named)
    first = str(fields.get("license", "")).strip().partition("\n")[0]
    return first if 0 < len(first) <= _LONGEST_NAME else _UNKNOWN


def _requirement_lines(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        words = line.partition("#")[0].removesuffix("\\").strip()  # hashes stand on lines of their own
        if words and not words.startswith("-"):
            yield words


def _row(pin: Requirement) -> str:
    package = metadata.metadata(pin.name)
    return f"| {canonicalize_name(pin.name)} | {package['Version']} | {licence_of(package.json)} |"


def _differences(rows: dict[str, str], pinned: set[str]) -> Iterator[str]:
    # Packages that only another Python or system needs may be in the document: they are not installed here.
    written = {line.split("|")[1].strip(): line for line in _DOCUMENT.read_text().splitlines() if line.startswith("| ")}
    written.pop("package", None)
    for name, row in rows.items():
        if written.get(canonicalize_name(name)) != row:
            yield f"docs/licences.md is out of date for {name}: run bin/licences"
    for name in written.keys() - {canonicalize_name(name) for name in pinned}:
        yield f"docs/licences.md has {name}, which is not used any more: run bin/licences"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
