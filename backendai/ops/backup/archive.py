"""The format of backups: a compressed tar archive that begins with a manifest and ends with a mark.

``manifest.json``, the database, ``data/<file>`` with the keys of the data folder, ``folders/<storage host>/<path>``,
``end``. Everything is written and read in one pass, so that a backup can go through a pipe.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from backendai.base.paths.packing import Entry, LeftOut, Tar, pack

MANIFEST, END = "manifest.json", "end"
KEYS = ("secrets.json", "local-join-token", "first-admin.json")  # file-server.json is made from them
_FORMAT = 1
_MOST_MANIFEST, _MOST_KEY = 2**20, 2**16  # bytes
_COPY = 2**20
_FAST = 1  # level of compression: people's files are mostly compressed already


class BackupRefused(Exception):
    """A backup cannot be made or restored; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds. ``folders``: the owner of the files on each storage host."""

    version: str
    date: str
    deployment: str
    database: str
    migrations: list[list[str]]
    folders: dict[str, int] = field(default_factory=dict)
    format: int = _FORMAT


def file_entry(name: str, path: Path) -> Entry:
    """Return the entry of a file that exists."""
    return Entry(name.encode(), path.stat(), lambda: os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))


def write(
    out: IO[bytes], manifest: Manifest, entries: Iterable[Entry], scratch: Path, say: Callable[[str], object]
) -> list[str]:
    """Write a backup, with a line for each GiB; return the names that are left out. Raises OSError."""
    left: list[bytes] = []
    about, end = scratch / MANIFEST, scratch / END
    about.write_text(json.dumps(asdict(manifest)))
    end.touch()

    def all_entries() -> Iterator[Entry]:
        yield file_entry(MANIFEST, about)
        for entry in entries:
            yield entry._replace(read=_noting(entry, left))
        yield file_entry(END, end)

    written = 0
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_FAST) as packed:
        for piece in pack(all_entries(), Tar()):
            packed.write(piece)
            if (written + len(piece)) >> 30 > written >> 30:
                say(f"{(written + len(piece)) >> 30} GiB ...")
            written += len(piece)
    return [os.fsdecode(name) for name in left]


def _noting(entry: Entry, left: list[bytes]) -> Callable[[], int | bytes | None]:
    def read() -> int | bytes | None:
        try:
            return entry.read()
        except FileNotFoundError:
            raise
        except (OSError, LeftOut):
            left.append(entry.name)
            raise

    return read


@contextmanager
def reading(stream: IO[bytes]) -> Iterator[tuple[Manifest, Iterator[tuple[tarfile.TarInfo, IO[bytes]]]]]:
    """Yield the manifest of a backup, and its other members with their content. Raises BackupRefused."""
    try:
        with tarfile.open(fileobj=stream, mode="r|gz") as archive:
            members = _members(archive)
            first = next(members, None)
            if first is None or first[0].name != MANIFEST:
                raise BackupRefused("This is not a backup of the platform: it does not begin with a manifest.")
            yield _manifest(first[1].read(_MOST_MANIFEST)), members
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise BackupRefused(f"This is not a backup of the platform, or it is damaged ({error}).") from error


def _members(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    for member in archive:
        archive.members = []  # type: ignore[attr-defined]  # else tarfile remembers every file of everybody
        if member.name == END:  # only the note about entries that are left out can follow
            return
        yield member, archive.extractfile(member) if member.isreg() else None  # type: ignore[misc]
    raise BackupRefused("The backup is not complete: its end is missing. Nothing was restored.")


def _manifest(text: bytes) -> Manifest:
    try:
        content: dict[str, Any] = json.loads(text)
        number = content["format"]
        if number != _FORMAT:
            raise BackupRefused(
                f"Version {content['version']} made this backup in the format {number}, and this version reads the "
                f"format {_FORMAT}. Restore it with version {content['version']}."
            )
        return Manifest(**content)
    except (ValueError, KeyError, TypeError) as error:
        raise BackupRefused("The manifest of the backup cannot be read.") from error


def save(content: IO[bytes], path: Path, size: int) -> None:
    """Write a member to a new private file. Raises OSError, and BackupRefused if the disk has too little space."""
    if size > (free := shutil.disk_usage(path.parent).free):
        raise BackupRefused(f"{path.name} needs {size} bytes, and {path.parent} has {free}. Nothing was restored.")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        copy(content, target, size)
        target.flush()
        os.fsync(target.fileno())


def save_key(member: tarfile.TarInfo, content: IO[bytes], folder: Path) -> None:
    """Write a file of the data folder to another folder. Raises BackupRefused if it is none, or too large."""
    name = member.name.removeprefix("data/")
    if name not in KEYS or not member.isreg() or member.size > _MOST_KEY:
        raise BackupRefused(f"The backup holds {member.name!r}, which no backup holds. Nothing was restored.")
    save(content, folder / name, member.size)


def copy(content: IO[bytes], target: IO[bytes], size: int) -> None:
    """Copy ``size`` bytes. Raises BackupRefused if there are fewer."""
    while size:
        piece = content.read(min(_COPY, size))
        if not piece:
            raise BackupRefused("The backup is not complete. Nothing was restored.")
        target.write(piece)
        size -= len(piece)
