"""Shell lines of the documentation, as they stand there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.system.platform import ROOT


def lines_of(heading: str) -> str:
    """Return the first block of shell lines below a heading of docs/rest.md."""
    text = (ROOT / "docs/rest.md").read_text().partition(f"\n{heading}\n")[2]
    found = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert found, heading
    return found[1]


def run_lines(lines: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Return what the lines print in a shell that ends at the first error and at a variable without a value."""
    command = ["bash", "-euxo", "pipefail", "-c", lines]
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout
