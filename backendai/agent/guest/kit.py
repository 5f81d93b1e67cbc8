"""Programs of the agent's machine that the kernel mounts, for images without them."""

from __future__ import annotations

import os
import shutil
import sys

PLACE = "/run/backendai-kit/current"
PROGRAMS = f"{PLACE}/bin"


def is_ours() -> bool:
    """Return whether this Python belongs to the kit, as the image has none."""
    return sys.executable.startswith(PLACE)


def python() -> str:
    """Return the program that starts this Python again; the kit's Python needs its start script."""
    return f"{PLACE}/python3" if is_ours() else sys.executable


def python_of_people(*, by_path: bool) -> str:
    """Return the Python that runs users' code. ``by_path``: the current ``python3`` in PATH, as the environment of a
    native kernel may be built after its guest has started."""
    return (shutil.which("python3") if by_path else None) or sys.executable


def file_server() -> str | None:
    """Return the path of the kit's SFTP server; None if it has none."""
    path = f"{PLACE}/sftp-server"
    return path if os.access(path, os.X_OK) else None


def tmux(path: str) -> str:
    """Return the command for tmux; empty if there is none. The image's is called by name, the kit's by path, as login
    shells set their own PATH."""
    if shutil.which("tmux", path=path):
        return "tmux"
    kept = f"{PROGRAMS}/tmux"
    return kept if os.access(kept, os.X_OK) else ""


def search_path(path: str) -> str:
    """Return the search path with the kit's programs appended."""
    return f"{path}:{PROGRAMS}" if os.path.isdir(PROGRAMS) else path  # noqa: PTH112
