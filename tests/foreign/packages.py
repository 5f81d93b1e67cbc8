"""An environment with programs that the platform does not use itself, made once on a machine from the package index."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.agent.interpreters import CACHE
from tests.patience import patient

_PACKAGES = ("jupyterlab>=4.2,<5", "tuspy>=1.1,<2")
_WITHIN = 600.0


def ensure_foreign_programs() -> Path:
    """Return the folder with the environment's programs."""
    version = hashlib.sha256(repr((sys.version, sys.base_prefix, _PACKAGES)).encode()).hexdigest()[:12]
    made = CACHE / f"foreign-{version}"
    CACHE.mkdir(mode=0o755, exist_ok=True)
    with (CACHE / "foreign.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / ".complete").exists():
            shutil.rmtree(made, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", made], check=True)
            pip: list[str | Path] = [made / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *_PACKAGES], check=True, timeout=patient(_WITHIN))
            (made / ".complete").touch()
    return made / "bin"
