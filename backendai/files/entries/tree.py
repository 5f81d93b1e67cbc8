"""A folder on disk: its directory, its meta.json, and the users' data."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import DATA, INCOMING, META, TRASH
from backendai.files.refusals import Refusal

STAGING, DELETING = ".staging", ".deleting"  # beside the folders: unfinished ones, and those being deleted
SIZE = "size.json"
PRIVATE, PASSABLE = 0o700, 0o711  # engines need to traverse directories on root-squashed shares, but not to read them
BLOCK = 512  # bytes, the unit of st_blocks on all file systems
_LARGEST_JSON = 64 * 1024
_BYTES_PER_ENTRY, _LEAST_ENTRIES = 16 * 2**10, 1000  # the ratio of inodes in file systems of their usual settings


@dataclass(frozen=True, slots=True)
class Meta:
    """A folder's description of itself, from which the database's rows can be restored."""

    id: str
    version: int
    name: str = ""
    owner: str = ""
    limit: int | None = None
    linked_path: str = ""
    cloned_from: str = ""
    project: int = 0  # number of its quota project in the file system; 0: none
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def most_entries(self) -> int | None:
        """The number of files, directories and links that the limit allows, those in the trash included."""
        return None if self.limit is None else max(_LEAST_ENTRIES, self.limit // _BYTES_PER_ENTRY)


@dataclass(frozen=True, slots=True)
class Size:
    """A folder's size: ``bytes`` (blocks on disk), and the number of files and links. ``at``: epoch seconds.
    ``entries``: files, directories and links, those in the trash and of unfinished writes included."""

    bytes: int
    files: int
    at: float
    entries: int = 0


@dataclass(frozen=True, slots=True)
class FolderTree:
    """An open folder: descriptors of its directory and of its data. ``read_only``: it shows a linked path."""

    meta: Meta
    base: int
    data: int
    read_only: bool

    def require_writable(self) -> None:
        """Refuse changes of a linked path."""
        if self.read_only:
            raise Refusal(403, "read-only", "This folder shows an existing path of its host, which is never changed.")


def parts_of(folder_id: UUID) -> beneath.Parts:
    """Return a folder's path below the root of its host."""
    return folder_id.hex[:2].encode(), str(folder_id).encode()


@contextmanager
def opened_base(root: int, folder_id: UUID) -> Iterator[int]:
    """Yield the descriptor of a folder's directory. Refuses with 404."""
    try:
        base = beneath.open_directory(root, parts_of(folder_id), follow=False)
    except FileNotFoundError as error:
        raise Refusal(404, "no-folder", "This folder is not on this storage host.") from error
    try:
        yield base
    finally:
        os.close(base)


@contextmanager
def opened_folder(root: int, folder_id: UUID, linkable: Sequence[Path]) -> Iterator[FolderTree]:
    """Yield an open folder. ``linkable``: the paths below which existing directories can become folders. Refuses with
    404."""
    with opened_base(root, folder_id) as base:
        meta = read_meta(base)
        if meta.linked_path:
            data = open_linked(meta.linked_path, linkable)
        else:
            data = beneath.open_directory(base, (DATA.encode(),), follow=False)
        try:
            yield FolderTree(meta, base, data, read_only=bool(meta.linked_path))
        finally:
            os.close(data)


def open_linked(path: str, linkable: Sequence[Path]) -> int:
    """Return the descriptor of an existing directory below an allowed path. Refuses others."""
    for prefix in linkable:
        if path == str(prefix) or path.startswith(f"{prefix}/"):
            parts = beneath.parse(path.removeprefix(str(prefix)).lstrip("/"))
            top = os.open(prefix, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return beneath.open_directory(top, parts, follow=True)
            except OSError as error:
                raise Refusal(404, "no-path", f"{path} cannot be opened: {error.strerror}.") from error
            finally:
                os.close(top)
    raise Refusal(422, "path-refused", f"{path} is not below a path of BACKENDAI_FILES_LINKED_PATHS.")


def read_meta(base: int) -> Meta:
    """Return the content of meta.json. Refuses with 503 if it is invalid."""
    content = read_json(base, META)
    try:
        if content is None:
            raise ValueError("it is missing")
        known = {name: content.pop(name) for name in Meta.__dataclass_fields__ if name in content}
        return Meta(**known)
    except (TypeError, ValueError) as error:
        raise Refusal(503, "storage-fault", f"{META} of this folder cannot be used: {error}.") from error


def write_meta(base: int, meta: Meta) -> None:
    """Replace meta.json atomically."""
    write_json(base, META, asdict(meta))


def read_size(base: int) -> Size | None:
    """Return the last measurement; None if there is none."""
    content = read_json(base, SIZE)
    try:
        if not content:
            return None
        told = int(content["bytes"]), int(content["files"]), float(content["at"])
        return Size(*told, entries=int(content["entries"]))
    except (KeyError, TypeError, ValueError):
        return None


def read_json(directory: int, name: str) -> dict[str, Any] | None:
    """Return a small JSON object; None if the file is missing or invalid."""
    try:
        descriptor = beneath.open_file(directory, (name.encode(),), follow=False)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = json.loads(file.read(_LARGEST_JSON))
        except ValueError:
            return None
    return content if isinstance(content, dict) else None


def write_json(directory: int, name: str, content: Mapping[str, Any], *, is_synced: bool = True) -> None:
    """Write a small JSON object atomically and durably. Not ``is_synced``: durable after the caller's sync of the file
    system."""
    draft = f".{name}.{uuid.uuid4().hex}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise
    if is_synced:
        os.fsync(directory)


def make_skeleton(directory: int) -> None:
    """Create the directories of a new folder."""
    for name in (DATA, INCOMING, TRASH):
        beneath.make_directory(directory, name.encode(), PRIVATE)


def open_part(base: int, name: str) -> int:
    """Return the descriptor of a folder's ``incoming`` or ``trash``; creates it if it is missing."""
    return beneath.make_directories(base, (name.encode(),), PRIVATE)


@contextmanager
def opened_part(base: int, name: str) -> Iterator[int]:
    """Yield the descriptor of a folder's ``incoming`` or ``trash``."""
    descriptor = open_part(base, name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
