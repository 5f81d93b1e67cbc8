"""Stores the output of runs on the session's disk: items with increasing offsets, limited in size.

An offset is the number of bytes of a run's items up to the end of an item. The first segment of each run and its last
ones are kept; readers get a ``gap`` with its size in place of deleted ones.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from backendai.agent.guest.home.items import Item, encoded

SEGMENT_BYTES = 2**20
LAST_SEGMENTS = 15
MOST_BYTES = 64 * 2**20
MOST_RUNS = 1000
LARGEST_READ = 2**20
_RECORD = "run.json"
_MARK = "BACKENDAI_KERNEL_ID"  # each kernel has its id in this variable


def folder_of_kernel() -> Path:
    """Return the folder for runs; creates it if needed. Raises OSError.

    Its name contains the kernel's id, as several sessions may share a mounted folder for temporary files.
    """
    folder = Path(tempfile.gettempdir(), ".backendai-runs")
    folder.mkdir(mode=0o700, exist_ok=True)
    folder /= re.sub("[^0-9a-f]", "", os.environ.get(_MARK, ""))[:8] or "runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class RunLog:
    """The items of one run in ``folder``: files of about 1 MiB, named by their first offset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.end = 0
        self._starts: list[int] = []
        self._file: int | None = None
        self._unsaved = 0
        self._find()

    @property
    def size(self) -> int:
        """The size on disk, in bytes."""
        return sum(self._length(number) for number in range(len(self._starts)))

    def append(self, item: Item) -> None:
        """Write the item. On a full disk items are dropped and counted; the next written item is preceded by their
        number."""
        if self._unsaved:
            told = {"type": "gap", "items": self._unsaved, "reason": "disk-full"}
            if not self._write(told):
                self._unsaved += 1
                return
            self._unsaved = 0
        if not self._write(item):
            self._unsaved += 1

    def read(self, after: int, limit: int = LARGEST_READ) -> tuple[list[Item], int]:
        """Return items from an offset (about ``limit`` bytes, at least one item), and the next offset."""
        items: list[Item] = []
        offset = max(0, min(after, self.end))
        while offset < self.end and limit > 0:
            number = bisect.bisect_right(self._starts, offset) - 1
            if number < 0 or offset >= self._starts[number] + self._length(number):
                begins = self._starts[number + 1] if number + 1 < len(self._starts) else self.end
                items.append({"type": "gap", "bytes": begins - offset, "reason": "too-much-output"})
                offset = begins
                continue
            found, offset = self._read_segment(number, offset, limit)
            items += found[0]
            limit -= found[1]
        return items, offset

    def drop_oldest(self) -> int:
        """Delete the oldest segment that is not being written; returns its size in bytes."""
        number = 0 if self._file is None or len(self._starts) > 1 else None
        if number is None or not self._starts:
            return 0
        length = self._length(number)
        self._path(self._starts.pop(number)).unlink(missing_ok=True)
        return length

    def close(self) -> None:
        """Close the current segment. A second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, item: Item) -> bool:
        line = encoded(item)
        before = None
        try:
            file = self._open()
            before = os.fstat(file).st_size
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            if before is not None and self._file is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, before)
            return False
        self.end += len(line)
        return True

    def _open(self) -> int:
        if self._file is not None and os.fstat(self._file).st_size >= SEGMENT_BYTES:
            self.close()
        if self._file is None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # users can delete the folder
            self._file = os.open(self._path(self.end), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if self.end not in self._starts:
                self._starts.append(self.end)
            while len(self._starts) > 1 + LAST_SEGMENTS:
                self._path(self._starts.pop(1)).unlink(missing_ok=True)
        return self._file

    def _read_segment(self, number: int, offset: int, limit: int) -> tuple[tuple[list[Item], int], int]:
        begins = self._starts[number]
        try:
            with self._path(begins).open("rb") as file:
                file.seek(offset - begins)
                data = file.read(limit)
                if b"\n" not in data:
                    data += file.readline()
        except OSError:  # users can delete the file
            data = b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            end = begins + self._length(number)
            return ([{"type": "gap", "bytes": end - offset, "reason": "deleted"}], limit), end
        items = [parsed for line in whole.splitlines() if (parsed := _parsed(line)) is not None]
        return (items, len(whole)), offset + len(whole)

    def _length(self, number: int) -> int:
        following = self._starts[number + 1] if number + 1 < len(self._starts) else self.end
        if number == 0 and len(self._starts) > 1:  # the segments after the first may be deleted
            with contextlib.suppress(OSError):
                return self._path(self._starts[0]).stat().st_size
        return following - self._starts[number]

    def _path(self, begins: int) -> Path:
        return self.folder / f"{begins:015d}.items"

    def _find(self) -> None:
        for path in sorted(self.folder.glob("*.items")):
            data = path.read_bytes()
            if not data.endswith(b"\n"):  # the guest was killed while writing
                os.truncate(path, data.rfind(b"\n") + 1)
            self._starts.append(int(path.stem))
            self.end = int(path.stem) + data.rfind(b"\n") + 1


class Journal:
    """The stored runs of a kernel, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def log(self, run_id: str) -> RunLog:
        """Return the log of a run; creates its folder if needed."""
        folder = self.folder / run_id
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return RunLog(folder)

    def save(self, record: dict[str, Any]) -> None:
        """Save a run's record atomically; on a full disk the older record stays."""
        draft = self.folder / record["run_id"] / "run.draft"
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(record))
            draft.replace(draft.with_name(_RECORD))

    def records(self) -> list[dict[str, Any]]:
        """Return the records of all runs, oldest first."""
        found = []
        for path in self.folder.glob(f"*/{_RECORD}"):
            with contextlib.suppress(OSError, ValueError):
                record = json.loads(path.read_text())
                if record["run_id"] == path.parent.name:
                    found.append(record)
        return sorted(found, key=lambda record: int(record.get("number", 0)))

    def delete(self, run_id: str) -> None:
        """Delete the stored output of a run."""
        shutil.rmtree(self.folder / run_id, ignore_errors=True)


def _parsed(line: bytes) -> Item | None:
    try:
        item = json.loads(line)
    except ValueError:
        return None
    return item if isinstance(item, dict) else None
