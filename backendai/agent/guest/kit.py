"""Programs of the agent's machine that a kernel finds beside its image: for what the image does not have."""

from __future__ import annotations

import os
import shutil
import sys

PLACE = "/run/backendai-kit/current"
PROGRAMS = f"{PLACE}/bin"


def is_ours() -> bool:
    """Return whether this Python is the kit's, because the image has none."""
    return sys.executable.startswith(PLACE)


def python() -> str:
    """Return what starts this Python anew: that of the kit only by its starter."""
    return f"{PLACE}/python3" if is_ours() else sys.executable


def python_of_people(*, by_path: bool) -> str:
    """Return the Python that runs people's code. ``by_path``: what ``python3`` means by now, because the environment
    of native kernels may be built after a guest has started."""
    return (shutil.which("python3") if by_path else None) or sys.executable


def file_server() -> str | None:
    """Return the kit's server of files, if it has one."""
    path = f"{PLACE}/sftp-server"
    return path if os.access(path, os.X_OK) else None


def tmux(path: str) -> str:
    """Return how tmux is called: by name where the image has it, else that of the kit, by its path, because login
    shells set a path of their own. Empty: there is none."""
    if shutil.which("tmux", path=path):
        return "tmux"
    kept = f"{PROGRAMS}/tmux"
    return kept if os.access(kept, os.X_OK) else ""


def search_path(path: str) -> str:
    """Return the folders of programs, with those of the kit as the last."""
    return f"{path}:{PROGRAMS}" if os.path.isdir(PROGRAMS) else path  # noqa: PTH112
