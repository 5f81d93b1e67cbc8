"""Bytes between here and sessions or folders: resumed where they broke off, with a progress bar where rich is there."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import click

from bai.config import cache_folder, write_private
from bai.output import size
from bai.sdk import api
from bai.sdk.call import Answer, Call, Problem, Unreachable
from bai.sdk.client import Client
from bai.sdk.nouns import Folder, Session

_PIECE, _CHUNK = 256 * 1024, 8 * 2**20
_TRIES = 6
_NOTE = re.compile(r"NOT INCLUDED( \(\d+\))?\.txt")  # names what an archive leaves out
_TUS = {"Tus-Resumable": "1.0.0"}
Advance = Callable[[int], None]


@contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """Show how far it is, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda number: None
        return
    with click.progressbar(length=total, label=title, file=sys.stderr) as bar:
        yield bar.update


@dataclass
class SessionFiles:
    """The home folder of a session."""

    portal: Client
    session: Session

    def upload(self, here: Path, path: str, *, overwrite: bool) -> None:
        """Write a file, whole or not at all."""
        with progress(here.name, here.stat().st_size) as advance:
            call = api.put_session_file(self.session.id, path, content=lambda: _pieces(here, advance))
            self.portal.send(call)

    def upload_all(self, here: Path, path: str, *, overwrite: bool) -> None:
        """Write the files of a directory."""
        for one in sorted(here.rglob("*")):
            if one.is_file():
                self.upload(one, f"{path}/{one.relative_to(here).as_posix()}", overwrite=overwrite)

    def download(self, path: str, here: Path) -> None:
        """Fetch a file."""
        if self.portal.send(api.session_entry(self.session.id, path=path)).get("kind") == "directory":
            raise Problem(409, {"code": "is-directory", "detail": f"{path} is a directory: add -r."})
        _download(self.portal, api.session_file(self.session.id, path), here, can_resume=False)

    def download_all(self, path: str, here: Path) -> None:
        """Fetch a directory."""
        with _fetched(self.portal, api.session_archive(self.session.id, path=path)) as file:
            archive = zipfile.ZipFile(file)
            _check_entries([(one.filename, one.file_size) for one in archive.infolist()], path, here)
            archive.extractall(here)  # noqa: S202  (which leaves out .. and the root)


@dataclass
class FolderFiles:
    """The files of a folder, at its file server."""

    portal: Client
    folder: Folder

    def __post_init__(self) -> None:
        if not self.folder.files_url:
            raise Problem(
                409, {"code": "no-files", "detail": f"The files of {self.folder.name} cannot be reached now."}
            )

    def upload(self, here: Path, path: str, *, overwrite: bool) -> None:
        """Send a file in parts; after a break, also of this program, it goes on where it was."""
        stat = here.stat()
        told = f"{self.folder.id} {path} {here.resolve()} {stat.st_size} {stat.st_mtime_ns}"
        note = cache_folder() / "uploads" / hashlib.sha256(told.encode()).hexdigest()
        place = note.read_text().lstrip("/") if note.exists() else ""
        offset = self._offset_of(place) if place else None
        if offset is None:
            self._make_parents(path)
            place, offset = self._begin(path, stat.st_size, overwrite), 0
            write_private(note, place)
        with progress(here.name, stat.st_size) as advance, here.open("rb") as file:
            advance(offset)
            while offset < stat.st_size:
                offset = self._send_part(place, file, offset, advance)
        note.unlink(missing_ok=True)

    def upload_all(self, here: Path, path: str, *, overwrite: bool) -> None:
        """Send a directory in one request."""
        query = {"overwrite": "all" if overwrite else "skip-equal"}
        call = self._call("PUT", "archive", query=query, content=lambda: _tar_of(here, path))
        refused = self.portal.send(call).get("refused") or []
        if refused:
            names = ", ".join(f"{one.get('path')} ({one.get('code')})" for one in refused[:10])
            raise Problem(
                409, {"code": "files-refused", "detail": f"Not copied: {names}", "data": {"refused": refused}}
            )

    def download(self, path: str, here: Path) -> None:
        """Fetch a file."""
        _download(self.portal, self._call("GET", "content", query={"path": path}), here, can_resume=True)

    def download_all(self, path: str, here: Path) -> None:
        """Fetch a directory."""
        if not hasattr(tarfile, "data_filter"):
            raise Problem(
                409, {"code": "old-python", "detail": "This Python is too old to unpack safely: 3.9.17 is not."}
            )
        query = {"format": "tar", "path": path or None}
        call = self._call("GET", "archive", query=query)
        with _fetched(self.portal, call) as file, tarfile.open(fileobj=file) as archive:
            _check_entries([(one.name, one.size) for one in archive], path, here)
            archive.extractall(here, filter="data")

    def _call(self, method: str, rest: str, **more: Any) -> Call[Any]:
        return api.of_files(method, self.folder.files_url, rest, **more)

    def _make_parents(self, path: str) -> None:
        names = path.strip("/").split("/")[:-1]
        for depth in range(len(names)):
            try:
                body = {"path": "/".join(names[: depth + 1])}
                self.portal.send(self._call("POST", "directories", body=body, keyed=False))
            except Problem as problem:
                if problem.status != 409:  # it exists
                    raise

    def _begin(self, path: str, size: int, overwrite: bool) -> str:
        told = f"path {base64.b64encode(path.encode()).decode()}" + (",overwrite MQ==" if overwrite else "")
        headers = {**_TUS, "Upload-Length": str(size), "Upload-Metadata": told}
        read: Callable[[Answer], str] = lambda answer: answer.headers["location"].rpartition("/uploads/")[2]  # noqa: E731
        return f"uploads/{self.portal.send(self._call('POST', 'uploads', headers=headers, content=b'', read=read))}"

    def _offset_of(self, place: str) -> int | None:
        """Return where an upload goes on; None if it does not exist any more."""
        read: Callable[[Answer], int] = lambda answer: int(answer.headers["upload-offset"])  # noqa: E731
        try:
            return int(self.portal.send(self._call("HEAD", place, headers=_TUS, read=read)))
        except Problem as problem:
            if problem.status in (404, 410):
                return None
            raise

    def _send_part(self, place: str, file: Any, offset: int, advance: Advance) -> int:
        for attempt in range(_TRIES):
            file.seek(offset)
            part = file.read(_CHUNK)
            if not part:
                raise Problem(409, {"code": "file-changed", "detail": f"{file.name} became shorter while it was sent."})
            headers = {**_TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
            try:
                self.portal.send(self._call("PATCH", place, headers=headers, content=part))
                advance(len(part))
                return offset + len(part)
            except (Unreachable, Problem) as error:
                if (isinstance(error, Problem) and error.status not in (409, 502, 503, 504)) or attempt == _TRIES - 1:
                    raise
                time.sleep(2**attempt / 4)
                there = self._offset_of(place)
                if there is None or (isinstance(error, Problem) and error.status == 409 and there == offset):
                    raise
                advance(there - offset)
                offset = there
        return offset


@contextmanager
def _fetched(portal: Client, call: Call[Any]) -> Iterator[IO[bytes]]:
    """Open a whole answer as a file."""
    with tempfile.TemporaryFile() as file:
        with portal.stream(call) as response:
            for piece in response.iter_bytes(_PIECE):
                file.write(piece)
        file.seek(0)
        try:
            yield file
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, RuntimeError, EOFError) as error:
            detail = f"The archive cannot be unpacked: {error}."
            raise Problem(409, {"code": "bad-archive", "detail": detail}) from error


def _check_entries(entries: list[tuple[str, int]], path: str, here: Path) -> None:
    """Raise a Problem for what is beside the directory, as a session makes its own archives, or for too much."""
    asked = PurePosixPath(path).name
    for name, _ in entries:
        first, *below = name.split("/")
        if asked and (first != asked or ".." in below) and not _NOTE.fullmatch(name):
            detail = f"Nothing was copied: the archive has {name!r}, which is not in {path}."
            raise Problem(409, {"code": "foreign-entry", "detail": detail})
    place = next(one for one in (here, *here.absolute().parents) if one.exists())
    needed, free = sum(length for _, length in entries), shutil.disk_usage(place).free
    if needed > free:
        detail = f"{path} has {size(needed)}, and there are {size(free)} free at {place}."
        raise Problem(409, {"code": "disk-full", "detail": detail})


def _download(portal: Client, call: Call[Any], here: Path, *, can_resume: bool) -> None:
    """Fetch a file beside its place, and put it there when it is whole."""
    part = here.with_name(f".{here.name}.part")
    etag = ""
    try:
        for attempt in range(_TRIES):
            there = part.stat().st_size if can_resume and etag and part.exists() else 0
            ranged = {"Range": f"bytes={there}-", "If-Range": etag} if there else {}
            try:
                with portal.stream(Call(**{**vars(call), "headers": ranged})) as response:
                    etag = response.headers.get("etag", "")
                    total = int(response.headers.get("content-length") or 0)
                    with (
                        progress(here.name, total) as advance,
                        part.open("ab" if response.status_code == 206 else "wb") as file,
                    ):
                        for piece in response.iter_bytes(_PIECE):
                            file.write(piece)
                            advance(len(piece))
                part.replace(here)
                return
            except Unreachable:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(2**attempt / 4)
    finally:
        part.unlink(missing_ok=True)


def _pieces(path: Path, advance: Advance) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
            advance(len(piece))


def _tar_of(here: Path, path: str) -> Iterator[bytes]:
    """Yield a directory as a tar stream, with ``path`` as its name."""
    reading, writing = os.pipe()
    failed: list[OSError] = []

    def write() -> None:
        try:
            with os.fdopen(writing, "wb") as sink, tarfile.open(fileobj=sink, mode="w|") as archive:
                archive.add(here, arcname=path.strip("/") or ".")
        except OSError as error:  # also of the pipe, when the sending broke off
            failed.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with os.fdopen(reading, "rb") as source:
        while piece := source.read(_PIECE):
            yield piece
    writer.join()
    if failed:  # an archive that looks whole must not end here
        raise failed[0]
