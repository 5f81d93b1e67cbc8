"""Access to storage hosts in a child process: a server that does not answer blocks only this process.

One order comes as JSON on the standard input, one answer goes to the standard output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.mounts import calls
from backendai.core.beneath import PathRefused, opener, parse
from backendai.core.storage_layout import DATA, StorageMissing, folder_path, read_marker

_DIRECTORY = os.O_PATH | os.O_DIRECTORY
MISSING, FOLDER_MISSING, REFUSED = "storage-missing", "folder-missing", "mount-refused"


class Failed(Exception):
    """The order cannot be carried out: a code and a sentence."""


def main() -> None:
    """Carry out the order."""
    order = json.load(sys.stdin)
    try:
        answer = {"look": look, "mount": mount}[order["do"]](order)
    except StorageMissing as error:
        answer = {"code": MISSING, "message": str(error)}
    except Failed as error:
        answer = {"code": error.args[0], "message": error.args[1]}
    except OSError as error:
        answer = {"code": REFUSED, "message": f"{error}."}
    json.dump(answer, sys.stdout)


def look(order: dict[str, Any]) -> dict[str, Any]:
    """Return whose files a storage host has, what is free there, and whether mounts can be attached."""
    root = Path(order["root"])
    marker = read_marker(root, host=order["host"], deployment=order["deployment"])
    disk = os.statvfs(root)
    return {"uid": marker.uid, "free": disk.f_bavail * disk.f_frsize, "attaches": _can_attach(root)}


def mount(order: dict[str, Any]) -> dict[str, Any]:
    """Return where each mount of one host can be bound from: a mount that was attached, or the folder's own path."""
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
    """Return a descriptor of what is to be mounted; no link leads there, and no other file system is crossed."""
    base = Path(one["linked"]) if one["linked"] else folder_path(root, UUID(one["folder"])) / DATA
    top = "/" if one["linked"] else str(root)
    whole = _step(top, str(base.relative_to(top)), one["name"])
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


def _step(top: str, path: str, name: str) -> int:
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
    """Return the path of an open directory, looked at again: nobody but its owner can have moved it meanwhile."""
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
