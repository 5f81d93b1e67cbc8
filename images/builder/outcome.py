"""Reads the output of builds: which step runs, and why one failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from images.builder.progress import Failure

BUILD_STEP = re.compile(r"^#\d+ \[(?:[\w.-]+ )?(\d+)/(\d+)\] (\w+) (.*)")
WORDS = (
    ("pip install", "installing Python packages"),
    ("apt-get", "installing packages"),
    ("FROM", "taking the image below"),
    ("COPY", "copying settings"),
    ("", "setting up the system"),
)
ROOT_STEPS = (
    ("I: Retrieving", (1, "fetching packages")),
    ("I: Extracting", (2, "unpacking packages")),
    ("I: Unpacking", (3, "installing packages")),
    ("I: Configuring", (3, "installing packages")),
    ("I: Importing", (4, "handing the image to Docker")),
)
# First match wins: a full disk or a missing network also makes every later line look broken.
CAUSES = (
    (
        "disk-full",
        re.compile(r"no space left on device", re.IGNORECASE),
        "the disk is full.",
        "Free space (docker system df shows what Docker holds), then retry the build.",
    ),
    (
        "docker-unreachable",
        re.compile(r"Cannot connect to the Docker daemon|error during connect"),
        "Docker stopped answering.",
        "Start Docker (systemctl start docker), then retry the build.",
    ),
    (
        "no-network",
        re.compile(
            r"Temporary failure resolving|Could not resolve|no such host|Name or service not known|Failed to resolve"
            r"|Network is unreachable|Connection timed out|[Cc]onnection refused|NewConnectionError|i/o timeout"
            r"|Failed getting release file|Couldn't download|Could not connect"
        ),
        "a package server cannot be reached.",
        "Check that apt-get update and pip download work on this machine, then retry the build.",
    ),
)
ERROR_LINE = re.compile(r"^(?:#\d+ )?(?:[\d.]+ )?(?:E: |ERROR: |error: )(.*)")


def read_step(line: str) -> tuple[int, int, str] | None:
    """Return the number of a step that begins with this line, of how many, and its words; None for other lines."""
    match = BUILD_STEP.match(line)
    if match:
        text = f"{match[3]} {match[4]}"
        words = next(words for part, words in WORDS if part in text)
        return int(match[1]), int(match[2]), words
    for start, (number, words) in ROOT_STEPS:
        if line.startswith(start):
            return number, 4, words
    return None


def explain_failure(what: str, tail: Sequence[str], log: str | None) -> Failure:
    """Return the failure that the end of the output tells of, with its fix."""
    text = "\n".join(tail)
    for code, pattern, because, fix in CAUSES:
        if pattern.search(text):
            return Failure(code, f"{what}: {because}", fix)
    errors = [match[1] for match in map(ERROR_LINE.match, tail) if match]
    detail = errors[-1][:200] if errors else "it ended without saying why."
    return Failure("build-failed", f"{what}: {detail}", f"Read {log or 'the output above'}, then retry the build.")
