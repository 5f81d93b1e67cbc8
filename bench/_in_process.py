"""A process of its own for measurements within Django, with a database of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench._portal import ROOT, own_postgres


def run_in_process(code: str, database: str, numbers: list[int]) -> dict[str, Any]:
    """Return the figures that this code prints as JSON, given these numbers, on one kind of database."""
    with tempfile.TemporaryDirectory(prefix="backendai-bench-") as name, contextlib.ExitStack() as leaving:
        folder = Path(name)
        folder.chmod(0o755)
        url = f"sqlite:///{folder / 'portal.sqlite3'}"
        if database == "postgres":
            url = os.environ.get("DATABASE_URL") or leaving.enter_context(own_postgres(folder))
        environment = {
            **os.environ,
            "BACKENDAI_TEST_DATABASE_URL": url,
            "TMPDIR": str(folder),
            "DJANGO_SETTINGS_MODULE": "backendai.settings.testing",
        }
        command = [sys.executable, "-c", code, *map(str, numbers)]
        answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return {"database": database, **json.loads(answer.stdout.splitlines()[-1])}
