"""The output of main processes: from the cluster as long as it has it, then from a copy that the agent keeps.

The cluster deletes a pod's log together with the pod. So before a deletion the agent starts to read the log, and saves
its end in a file until the kernel is removed.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.names import MAIN, pod_name
from backendai.agent.backends.kubernetes.api.streams import log_of
from backendai.agent.backends.shared.trees import ids_in
from backendai.base.core.log_lines import from_last_lines, last_lines

# A node's error messages inside a log (with status 200) when the container disappears during reading.
_EXCUSE = re.compile(
    rb"(?:unable to retrieve container logs for \S+|(?:failed to [^\n]*?: )?rpc error: code = \w+ desc = [^\n]*"
    rb"[Nn]o such container[^\n]*|rpc error: code = NotFound desc = [^\n]*)\s*\Z"
)
KEPT_BYTES = 4 * 2**20  # the portal's limit of a log
_USUAL_LINE = 40
_LONGEST_RECORD = 16384  # nodes split longer lines
_KEPT_LINES = 200_000
_LONGEST_GRACE = 120.0


class PodLogs:
    """``folder``: the folder of the saved ends of logs."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api, self._folder = api, folder

    def read(self, kernel_id: UUID, limit: int) -> tuple[bytes, bool]:
        """Return the last ``limit`` bytes, and whether the log is longer."""
        kept = self._kept(kernel_id)
        if kept.exists():
            data = kept.read_bytes()
            return data[max(len(data) - limit, 0) :], len(data) > limit or kept.with_suffix(".cut").exists()
        output = b""
        # The API counts lines from the end, but bytes only from the beginning: request an estimated number of lines,
        # and if these have too few bytes, the largest possible number.
        for lines in (limit // _USUAL_LINE + 1, limit + 1):
            output = self._asked(kernel_id, lines)
            if len(output) > limit or output.count(b"\n") + len(output) // _LONGEST_RECORD + 1 < lines:
                break
        return output[max(len(output) - limit, 0) :], len(output) > limit

    async def follow(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """Yield the log from ``tail`` lines before its end (None: all); ``follow`` continues as it grows."""
        kept = self._kept(kernel_id)
        if await asyncio.to_thread(kept.exists):
            data = await asyncio.to_thread(kept.read_bytes)
            yield data if tail is None else last_lines(data, tail)
            return

        def read(records: int | None, follow: bool) -> AsyncGenerator[bytes]:
            query = ({"follow": "1"} if follow else {}) | ({} if records is None else {"tailLines": str(records)})
            return log_of(self._api, pod_name(kernel_id), query)

        pieces = read(None, follow) if tail is None else from_last_lines(read, tail, follow=follow)
        async for piece in pieces:
            yield piece

    def keep(self, kernel_id: UUID) -> LogCache:
        """Return a reader of the log, from now to its end."""
        return LogCache(self._api, kernel_id, self._kept(kernel_id))

    def drop(self, kernel_id: UUID) -> None:
        """Delete the saved log. Does nothing if there is none."""
        for path in (self._kept(kernel_id), self._kept(kernel_id).with_suffix(".cut")):
            path.unlink(missing_ok=True)

    def sweep(self, live: set[UUID]) -> None:
        """Delete the saved logs of kernels that are not in ``live``."""
        for kernel_id in ids_in(self._folder) - live:
            self.drop(kernel_id)

    def _kept(self, kernel_id: UUID) -> Path:
        return self._folder / f"{kernel_id}.log"

    def _asked(self, kernel_id: UUID, lines: int) -> bytes:
        path = self._api.path("pods", pod_name(kernel_id), "log")
        try:
            return _EXCUSE.sub(b"", self._api.text(path, {"container": MAIN, "tailLines": str(lines)}))
        except ApiError as error:
            if error.status in (400, 404):  # the pod has not started, or no longer exists
                return b""
            raise


class LogCache:
    """Reads one log to its end in a thread, and saves its last bytes."""

    def __init__(self, api: Api, kernel_id: UUID, path: Path) -> None:
        self._api, self._name, self._path = api, pod_name(kernel_id), path
        self._seen, self._cut = bytearray(), False
        self._reading = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    def start(self) -> None:
        """Start to read; returns after the first bytes, or after 1 s."""
        self._thread.start()
        self._reading.wait(1.0)

    def finish(self, seconds: float) -> None:
        """Save the received bytes, after waiting up to ``seconds`` for the log's end. Raises OSError."""
        self._thread.join(seconds)
        data = _EXCUSE.sub(b"", bytes(self._seen))
        if not data and self._path.exists():  # an earlier try has saved it
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._cut:
            self._path.with_suffix(".cut").touch()
        draft = self._path.with_suffix(".new")
        draft.write_bytes(data)
        draft.replace(self._path)

    def finish_later(self) -> None:
        """Save the received bytes at the log's end, without waiting for it."""
        threading.Thread(target=self.finish, args=(_LONGEST_GRACE,), name="log-end", daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.run(self._read())
        except BackendError:
            pass  # keep the bytes received so far
        finally:
            self._reading.set()

    async def _read(self) -> None:
        query = {"follow": "1", "tailLines": str(_KEPT_LINES)}
        async for piece in log_of(self._api, self._name, query):
            self._seen += piece
            self._reading.set()
            if len(self._seen) > KEPT_BYTES:
                del self._seen[: len(self._seen) - KEPT_BYTES]
                self._cut = True
