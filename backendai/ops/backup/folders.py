"""The files of folders in backups: what the storage hosts of this machine hold."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from backendai.base.core.errors import UserError
from backendai.base.paths import beneath
from backendai.base.paths.packing import Entry
from backendai.base.paths.storage_layout import MARKER, Marker, StorageMissing, read_marker
from backendai.base.paths.tree_walk import select
from backendai.files.hosts import acting_as
from backendai.files.process import prepare_host
from backendai.ops.backup.archive import BackupRefused, copy

_TOP = "folders"
_DRAFT = b".restoring"  # in the storage host, until all files are there
_PERMISSIONS = 0o777


def owners(hosts: Mapping[str, Path], deployment: str) -> dict[str, int]:
    """Return who owns the files of each storage host. Raises BackupRefused for one that is not there."""
    found = {}
    for name, root in hosts.items():
        try:
            found[name] = read_marker(root, host=name, deployment=deployment).uid
        except StorageMissing as error:
            raise BackupRefused(
                f"The storage host {name} is not at {root}: {error} Name the storage hosts of this machine with "
                "BACKENDAI_STORAGE_HOSTS, or leave out --folders."
            ) from error
    return found


def entries(hosts: Mapping[str, Path]) -> Iterator[Entry]:
    """Yield everything on the storage hosts but their markers."""
    for name, root in hosts.items():
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for entry in select(top, [()]):
            if entry.name != MARKER.encode():
                yield entry._replace(name=f"{_TOP}/{name}/".encode() + entry.name)


class Restored:
    """Storage hosts that get the folders of a backup: all at the end, or none."""

    def __init__(self, hosts: Mapping[str, Path], owned: Mapping[str, int], deployment: str) -> None:
        """Make the storage hosts ready. Raises BackupRefused if one is unknown here, or has folders."""
        self._hosts, self.files = {name: (hosts.get(name), uid) for name, uid in owned.items()}, 0
        for name, (root, uid) in self._hosts.items():
            if root is None:
                raise BackupRefused(
                    f"The backup holds folders of the storage host {name}. Say where they belong: "
                    f"BACKENDAI_STORAGE_HOSTS={name}=/path"
                )
            _make_ready(root, Marker(deployment, name, uid if os.geteuid() == 0 else os.geteuid()))

    def add(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """Write a member below the draft of its storage host. Raises BackupRefused, OSError."""
        name, _, path = member.name.removeprefix(f"{_TOP}/").partition("/")
        root, uid = self._hosts.get(name, (None, 0))
        if root is None:
            raise BackupRefused(f"The backup holds {member.name!r}, which its manifest does not name.")
        parts = beneath.parse(os.fsencode(path))
        # Opened before: the owner of the files may not pass through the data folder.
        top = os.open(root / os.fsdecode(_DRAFT), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with acting_as(uid):
                self.files += _write(top, parts, member, content)
        finally:
            os.close(top)

    def finish(self) -> None:
        """Move the folders from the drafts to their places."""
        for root, _ in self._hosts.values():
            assert root is not None
            draft = root / os.fsdecode(_DRAFT)
            for path in draft.iterdir():
                path.rename(root / path.name)
            draft.rmdir()

    def discard(self) -> None:
        """Remove what was added."""
        for root, _ in self._hosts.values():
            if root is not None:
                shutil.rmtree(root / os.fsdecode(_DRAFT), ignore_errors=True)


def is_folder_member(name: str) -> bool:
    """Return whether a member of a backup belongs to a folder."""
    return name.startswith(f"{_TOP}/")


def _make_ready(root: Path, marker: Marker) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o711)
        if (root / MARKER).exists():
            read_marker(root, host=marker.host, deployment=marker.deployment)
        else:
            prepare_host(root, marker)
        draft = root / os.fsdecode(_DRAFT)
        if draft.is_dir() and not draft.is_symlink():  # of a restore that was interrupted
            shutil.rmtree(draft)
        if others := [path for path in root.iterdir() if path.name != MARKER]:
            raise BackupRefused(
                f"The storage host {marker.host} has folders at {root} already ({others[0].name}, ...). Move them away "
                "first: files of two times in one folder would be mixed."
            )
        draft.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(draft, marker.uid, marker.uid)
    except (StorageMissing, UserError) as error:
        raise BackupRefused(f"{root} cannot take the folders of {marker.host}: {error}") from error


def _write(top: int, parts: beneath.Parts, member: tarfile.TarInfo, content: IO[bytes] | None) -> bool:
    """Create an entry below an open directory, following no link; returns whether it did."""
    if member.isdir():
        # Owners may write: their directories are filled now. What they forbade themselves is not kept.
        os.close(beneath.make_directories(top, parts, (member.mode & _PERMISSIONS) | 0o700))
        return True
    if not (member.isreg() or member.issym()) or not parts:
        return False
    parent = beneath.make_directories(top, parts[:-1], 0o700)
    try:
        if member.issym():
            os.symlink(os.fsencode(member.linkname), parts[-1], dir_fd=parent)
            return True
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(parts[-1], flags, member.mode & _PERMISSIONS, dir_fd=parent), "wb") as target:
            assert content is not None
            copy(content, target, member.size)
            target.flush()
            os.fchmod(target.fileno(), member.mode & _PERMISSIONS)
            os.utime(target.fileno(), (member.mtime, member.mtime))
        return True
    finally:
        os.close(parent)
