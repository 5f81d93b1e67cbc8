"""Accesses storage hosts in a child process, so that an unresponsive server blocks only that process.

Reads one order as JSON from standard input and writes one answer to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.mounts import calls
from backendai.base.paths.beneath import PathRefused, opener, parse
from backendai.base.paths.storage_layout import DATA, StorageMissing, folder_path, read_marker

_DIRECTORY = os.O_PATH | os.O_DIRECTORY
MISSING, FOLDER_MISSING, REFUSED = "storage-missing", "folder-missing", "mount-refused"


class Failed(Exception):
    """The order failed: a code and a message."""


def main() -> None:
    """Execute the order on standard input."""
    execute({"look": look, "mount": mount})


def execute(kinds: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Execute the order on standard input by the function of its kind."""
    order = json.load(sys.stdin)
    try:
        answer = kinds[order["do"]](order)
    except StorageMissing as error:
        answer = {"code": MISSING, "message": str(error)}
    except Failed as error:
        answer = {"code": error.args[0], "message": error.args[1]}
    except OSError as error:
        answer = {"code": REFUSED, "message": f"{error}."}
    json.dump(answer, sys.stdout)


def look(order: dict[str, Any]) -> dict[str, Any]:
    """Return the owner of a storage host's files, the free bytes, and whether mounts can be attached."""
    root = Path(order["root"])
    marker = read_marker(root, host=order["host"], deployment=order["deployment"])
    disk = os.statvfs(root)
    return {"uid": marker.uid, "free": disk.f_bavail * disk.f_frsize, "attaches": _can_attach(root)}


def mount(order: dict[str, Any]) -> dict[str, Any]:
    """Return the path to bind for each mount of one host: the attached mount, or the folder's own path."""
    root = Path(order["root"])
    marker = read_marker(root, host=order["host"], deployment=order["deployment"])
    sources = []
    for one in order["mounts"]:
        opened = _open(root, one)
        try:
            sources.append(_attached(opened, one) if one["at"] else _path_of(opened))
        finally:
            os.close(opened)
    return {"uid": marker.uid, "sources": sources}


def _open(root: Path, one: dict[str, Any]) -> int:
    """Return a descriptor of the directory to mount. Follows no links and stays on one file system. Raises Failed."""
    base = Path(one["linked"]) if one["linked"] else folder_path(root, UUID(one["folder"])) / DATA
    top = "/" if one["linked"] else str(root)
    whole = open_below(top, str(base.relative_to(top)), one["name"])
    if not one["sub_path"]:
        return whole
    try:
        part = opener()(whole, _parts(one["sub_path"]), _DIRECTORY, False)
    except OSError as error:
        text = f"Folder {one['name']} has no directory {one['sub_path']}: {error.strerror}."
        raise Failed(FOLDER_MISSING, text) from error
    finally:
        device = os.fstat(whole).st_dev
        os.close(whole)
    if os.fstat(part).st_dev != device:
        os.close(part)
        raise Failed(REFUSED, f"{one['sub_path']} in folder {one['name']} is on another file system.")
    return part


def open_below(top: str, path: str, name: str) -> int:
    """Return a descriptor (O_PATH) of a directory below ``top``, which belongs to the folder ``name``. Follows no
    links. Raises Failed."""
    directory = os.open(top, _DIRECTORY | os.O_CLOEXEC)
    try:
        return opener()(directory, _parts(path), _DIRECTORY, False)
    except OSError as error:
        raise Failed(FOLDER_MISSING, f"Folder {name} is not on the storage host: {error.strerror}.") from error
    finally:
        os.close(directory)


def _parts(path: str) -> tuple[bytes, ...]:
    try:
        return parse(path)
    except PathRefused as error:
        raise Failed(REFUSED, error.message) from error


def _attached(opened: int, one: dict[str, Any]) -> str:
    tree = calls.clone(opened, read_only=one["read_only"])
    try:
        Path(one["at"]).mkdir(parents=True, mode=0o711)
        calls.attach(tree, one["at"])
    finally:
        os.close(tree)
    return str(one["at"])


def _path_of(opened: int) -> str:
    """Return the path of an open directory. Raises Failed if the path now leads elsewhere."""
    path = str(Path(f"/proc/self/fd/{opened}").readlink())
    if not os.path.samestat(Path(path).stat(), os.fstat(opened)):
        raise Failed(REFUSED, f"{path} was moved while it was looked at.")
    return path


def _can_attach(root: Path) -> bool:
    directory = os.open(root, _DIRECTORY)
    try:
        os.close(calls.clone(directory, read_only=True))
    except OSError:
        return False
    finally:
        os.close(directory)
    return True
