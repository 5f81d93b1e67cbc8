"""Rules for paths of files in a session's home folder. The portal validates input with these rules, and agents check
files before writing them."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.base.core.names import is_hidden

LONGEST_PATH = 255
BOOTSTRAP = ".bootstrap.sh"
BOOTSTRAP_PENDING = ".bootstrap.pending"
AUTHORIZED_KEYS = ".ssh/authorized_keys"
_OURS = frozenset({BOOTSTRAP, BOOTSTRAP_PENDING, AUTHORIZED_KEYS, ".ssh"})


def path_problem(path: str) -> str:
    """Return why a file cannot be written at this path (relative to the home); empty if it can."""
    if not path or len(path.encode()) > LONGEST_PATH:
        return Message("A path has 1 to {longest_path} bytes.", longest_path=LONGEST_PATH)
    if not path.isprintable():
        return Message("A path has printable characters only.")
    if path.startswith(("/", "~")):
        return Message("Write the path relative to the home folder: .bashrc, .config/app/settings.")
    if any(part in ("", ".", "..") for part in path.split("/")):
        return Message("A path has no empty parts and no '.' or '..'.")
    if any(part != part.strip() or any(is_hidden(letter) for letter in part) for part in path.split("/")):
        return Message("A part of a path does not begin or end with a space, and has no invisible characters.")
    return ""


def is_reserved(path: str) -> bool:
    """Return whether the platform itself writes a file at this path."""
    return any(clash(path, ours) for ours in _OURS if ours != ".ssh") or path == ".ssh"


def clash(one: str, other: str) -> bool:
    """Return whether two paths cannot both be files, because they are equal or one contains the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
