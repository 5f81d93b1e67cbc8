"""A Python environment with ipykernel and a Jupyter kernel of Bash, made once here from the package index."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

# Not in the home of root, which the users of kernels cannot read.
CACHE = Path("/var/tmp/backendai-tests")
_PACKAGES = ("ipykernel>=6.29,<8", "bash_kernel>=0.10,<1")
_BASH = {
    "argv": ["python", "-m", "bash_kernel", "-f", "{connection_file}"],
    "display_name": "Bash",
    "language": "bash",
}


def ensure_jupyter_environments() -> Path:
    """Return a folder as agents have it for environments of native sessions."""
    version = hashlib.sha256(repr((sys.version, sys.base_prefix, _PACKAGES, _BASH)).encode()).hexdigest()[:12]
    folder = CACHE / f"interpreters-{version}"
    CACHE.mkdir(mode=0o755, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder)
            (folder / ".complete").touch()
    return folder


def _make(folder: Path) -> None:
    made = folder / "python"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    subprocess.run([made / "bin/pip", "install", "--quiet", *_PACKAGES], check=True, timeout=300)
    spec = made / "share/jupyter/kernels/bash"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps(_BASH))
    folder.chmod(0o755)
