"""The build of the portal: from the settings of its image, else from the git clone that it runs from."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from functools import cache

from django.conf import settings

from backendai.base.core.version import VERSION
from backendai.base.paths.installation import IS_CLONE

_PATIENCE_SECONDS = 2.0


@cache
def build_text() -> str:
    """Return version, commit and date, as far as known; computed once for each process."""
    commit, made_at = settings.BUILD_COMMIT, settings.BUILD_DATE
    if not commit and IS_CLONE:  # the folder of a package may lie in a clone of something else
        commit, made_at = _of_the_clone()
    return " · ".join(filter(None, (VERSION, commit[:12], made_at)))


def _of_the_clone() -> tuple[str, str]:
    command = ["git", "-C", str(settings.BASE_DIR), "log", "-1", "--format=%H %ct"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True)
        commit, _, seconds = told.stdout.strip().partition(" ")
        return commit, f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d}"
    except (OSError, subprocess.SubprocessError, ValueError):
        return "", ""
