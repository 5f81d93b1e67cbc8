"""Checks of the storage hosts of this machine: marker, free space, and limits of network file systems."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.paths.storage_layout import StorageMissing, read_marker
from backendai.files.config import read_hosts
from backendai.ops.doctor.check import Check, ok, problem, warning

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "lustre")
_GIB = 2**30
_LEAST_FREE = 5 * _GIB


def storage(hosts: Mapping[str, Path] | None = None, mounts: Path = _MOUNTS) -> list[Check]:
    """Return the findings about every storage host of this machine."""
    try:
        found = read_hosts(os.environ.get("BACKENDAI_STORAGE_HOSTS", "")) if hosts is None else hosts
    except UserError as error:
        return [problem("folders", error.message, "Correct it in .env and start again.")]
    if not found:
        return [ok("folders", "this machine names no storage host (BACKENDAI_STORAGE_HOSTS)")]
    return [check for name, path in found.items() for check in _host(name, path, mounts)]


def _host(name: str, path: Path, mounts: Path) -> list[Check]:
    title = f"folders {name}"
    try:
        marker = read_marker(path, host=name, deployment=settings.DEPLOYMENT)
    except StorageMissing as error:
        fix = f"Mount the share. If {path} is new: manage.py file_server --prepare {name}"
        return [problem(title, f"{path}: {error}", fix)]
    free = shutil.disk_usage(path).free
    said = f"{path}, {free / _GIB:.1f} GiB are free; files belong to the user {marker.uid}"
    if free < _LEAST_FREE:
        checks = [warning(title, said, "Free some space there: uploads are refused when it is full.")]
    else:
        checks = [ok(title, said)]
    kind = file_system(path, mounts)
    if kind in _NETWORK:
        fix = (
            "Mount it hard, with the same clock on both sides; root of every machine that mounts it reads all folders."
        )
        checks.append(warning(title, f"lies on {kind}: lists of files may be a minute old, limits are measured", fix))
    if os.geteuid() not in (0, marker.uid):
        fix = f"Run the file server as root or as the user {marker.uid}."
        checks.append(problem(title, f"this user is {os.geteuid()} and cannot write there", fix))
    return checks


def file_system(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system that contains a path."""
    best, kind = "", ""
    for line in mounts.read_text().splitlines():
        _, where, found = line.split()[:3]
        where = where.replace("\\040", " ")
        if len(where) >= len(best) and (path == Path(where) or Path(where) in path.parents):
            best, kind = where, found
    return kind
