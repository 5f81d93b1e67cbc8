"""Finds known vulnerabilities of the pinned packages in OSV (https://osv.dev)."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

_SERVICE = "https://api.osv.dev"
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)
_SECONDS = 15.0

Pins = list[tuple[str, str]]


def main(arguments: Sequence[str]) -> int:
    """Print a line for each vulnerable package, and a summary; always returns 0."""
    parser = argparse.ArgumentParser(prog="bin/vulnerabilities")
    parser.add_argument("files", nargs="+", type=Path, help="requirements files")
    parser.add_argument("--service", default=_SERVICE, help="address of OSV or of a mirror")
    parser.add_argument("--timeout", type=float, default=_SECONDS, help="seconds")
    chosen = parser.parse_args(arguments)
    pins = read_pins(chosen.files)
    try:
        found = find_vulnerabilities(pins, chosen.service, chosen.timeout)
    except (OSError, ValueError) as error:
        print(f"WARNING: not checked, {chosen.service} gave no answer that can be read ({error})")  # noqa: T201
        return 0
    for name, names in found.items():
        print(f"{name}: {', '.join(names)}")  # noqa: T201
    print(summary(len(pins), found))  # noqa: T201
    return 0


def read_pins(files: Sequence[Path]) -> Pins:
    """Return name and version of each pinned package, without duplicates."""
    pins = {(pin.group(1), pin.group(2)) for file in files for pin in _PIN.finditer(file.read_text())}
    return sorted(pins)


def find_vulnerabilities(pins: Pins, service: str, timeout: float) -> dict[str, list[str]]:
    """Return the ids of vulnerabilities by package. Raises OSError or ValueError for an incomplete answer."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in pins]
    body = json.dumps({"queries": queries}).encode()
    request = Request(f"{service}/v1/querybatch", body, {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=timeout) as answer:  # noqa: S310
        results = _results(json.load(answer))
    if len(results) != len(pins):
        raise ValueError(f"{len(results)} results for {len(pins)} packages")
    named = zip(pins, results, strict=True)
    return {f"{name} {version}": _ids(result) for (name, version), result in named if _ids(result)}


def summary(number: int, found: dict[str, list[str]]) -> str:
    """Return the result as one line."""
    if not found:
        return f"{number} packages, no known vulnerability"
    return f"WARNING: known vulnerabilities in {len(found)} of {number} packages: {', '.join(found)} (https://osv.dev)"


def _results(answer: Any) -> list[Any]:
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise ValueError("no results")
    return results


def _ids(result: Any) -> list[str]:
    vulnerabilities = result.get("vulns") or [] if isinstance(result, dict) else []
    return [str(each.get("id")) for each in vulnerabilities if isinstance(each, dict)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
