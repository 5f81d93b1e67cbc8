"""Rules for mount paths and sub-paths of folders, shared by portal and agents."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.base.core.names import is_hidden
from backendai.base.paths.home_paths import is_reserved

HOME = "/home/work"
LONGEST_TARGET = 255
LONGEST_SUB_PATH = 1024
_LONGEST_PART = 255  # bytes: the limit of file systems
# The system's directories. Other top-level directories, such as /data or /mnt, are allowed.
_RESERVED = (
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "root", "run", "sbin", "sys",
    "tmp", "usr", "var",
)  # fmt: skip


def absolute_target(name: str, target: str) -> str:
    """Return the absolute mount path of a folder. Relative paths begin in the home; the default is the folder's name
    there."""
    if not target:
        return f"{HOME}/{name}"
    return target if target.startswith("/") else f"{HOME}/{target}"


def target_problem(target: str) -> str:
    """Return why a folder cannot be mounted at this absolute path; empty if it can."""
    if not target.startswith("/") or len(target.encode()) > LONGEST_TARGET:
        return Message(
            "A mount path is absolute and has at most {longest_target} bytes.", longest_target=LONGEST_TARGET
        )
    if problem := _parts_problem(target[1:]):
        return problem
    first, _, _ = target[1:].partition("/")
    if first in _RESERVED:
        return Message(
            "/{first} belongs to the system: use a path below {home}, or one of your own such as /data.",
            first=first,
            home=HOME,
        )
    if first == "home":
        inside = below_home(target)
        if not inside:
            return Message(
                "{home} is the home folder itself: use a path below it, or one of your own such as /data.", home=HOME
            )
        if is_reserved(inside):
            return Message("{inside} in the home folder is written by the platform: use another path.", inside=inside)
    return ""


def sub_path_problem(path: str) -> str:
    """Return why this part of a folder cannot be mounted; empty if it can."""
    if not path:
        return ""
    if path.startswith("/") or len(path.encode()) > LONGEST_SUB_PATH:
        return Message(
            "A sub-path is relative to the folder and has at most {longest_sub_path} bytes.",
            longest_sub_path=LONGEST_SUB_PATH,
        )
    return _parts_problem(path)


def below_home(target: str) -> str:
    """Return a mount path relative to the home; empty for the home itself and for paths elsewhere."""
    return target[len(HOME) + 1 :] if target.startswith(f"{HOME}/") else ""


def overlap(one: str, other: str) -> bool:
    """Return whether two mount paths are equal, or one contains the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _parts_problem(path: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return Message("A path has no empty parts and no '.' or '..'.")
    if not path.isprintable() or any(is_hidden(letter) for letter in path):
        return Message("A path has printable characters only.")
    if any(part != part.strip() or len(part.encode()) > _LONGEST_PART for part in parts):
        return Message(
            "A part of a path has at most {longest_part} bytes and no space at its ends.", longest_part=_LONGEST_PART
        )
    return ""
