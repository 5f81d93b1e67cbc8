"""Storage hosts of this file server: each has a path with a marker, and threads that a hanging disk can block."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from backendai.base.paths.storage_layout import Marker, StorageMissing, read_marker
from backendai.files.refusals import StorageSilent
from backendai.files.workers import Call, Workers

P = ParamSpec("P")
T = TypeVar("T")

# Slow disks are waited for. A disk on which not even the marker can be read counts as silent, within 2.6 s.
_PROBE_AFTER, _SILENT_AFTER, _LOOK_EVERY = 1.5, 1.0, 0.1
_QUICK, _LONG = 6, 3  # threads
_QUICK_EACH, _LONG_EACH = 2, 1  # of which one visitor gets so many
# Whom the current request, and the work that it starts, is for: threads are shared fairly between visitors.
VISITOR: ContextVar[str] = ContextVar("visitor", default="")
# Each kind of background work has its own threads: clones that take hours do not delay removals.
BACKGROUND = {"clone": 2, "measure": 2, "remove": 2, "operation": 4, "sweep": 1}


class Host:
    """One storage host. Blocking work goes through ``run``, which returns in time even if the disk hangs."""

    def __init__(self, name: str, root: Path, *, deployment: str) -> None:
        self.name, self.root, self.deployment = name, root, deployment
        self.silent = False
        self._quick = Workers(f"{name}-quick", _QUICK, _QUICK_EACH)
        self._long = Workers(f"{name}-long", _LONG, _LONG_EACH)
        self._background = {
            kind: Workers(f"{name}-{kind}", most, max(1, most // 2)) for kind, most in BACKGROUND.items()
        }
        self._probe = Workers(f"{name}-probe", 1)
        self._watch: asyncio.Task[None] | None = None

    def marker(self) -> Marker:
        """Return the marker on disk. Blocks while the disk hangs. Raises StorageMissing."""
        marker = read_marker(self.root, host=self.name, deployment=self.deployment)
        if os.geteuid() not in (0, marker.uid):
            raise StorageMissing(
                f"Files of {self.name} belong to the user {marker.uid}, and this file server runs as {os.geteuid()}."
            )
        return marker

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of the root, with the rights of the files' owner. Blocks. Raises StorageMissing."""
        marker = self.marker()
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with acting_as(marker.uid):
                yield root
        finally:
            os.close(root)

    async def run(self, work: Callable[Concatenate[int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``work(root, …)`` in a thread as the owner of the files. Raises StorageSilent, StorageMissing."""
        return await self._await(self._quick, self._call(work, *args, **kwargs))

    async def run_long(self, work: Callable[Concatenate[int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like ``run``, for work that may take seconds; it uses other threads, so that short calls do not wait."""
        return await self._await(self._long, self._call(work, *args, **kwargs))

    async def run_in_background(
        self, kind: str, work: Callable[Concatenate[int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like ``run``, for work that no request waits for: it is not abandoned while the disk is silent. ``kind``: see
        ``BACKGROUND``."""
        return await self._background[kind].submit(self._call(work, *args, **kwargs), VISITOR.get()).answer

    async def fault(self) -> str:
        """Return why this host cannot be used; empty if it can."""
        try:
            await self.run(lambda root: None)
        except (StorageSilent, StorageMissing, OSError) as error:
            return str(error)
        return ""

    def stuck(self) -> int:
        """Return the number of busy threads of this host."""
        return sum(workers.running() for workers in (self._quick, self._long, self._probe, *self._background.values()))

    def _call(self, work: Callable[Concatenate[int, P], T], *args: P.args, **kwargs: P.kwargs) -> Callable[[], T]:
        def call() -> T:
            with self.opened() as root:
                return work(root, *args, **kwargs)

        return call

    async def _await(self, workers: Workers, work: Callable[[], T]) -> T:
        if self.silent:
            raise StorageSilent(self.name)
        call = workers.submit(work, VISITOR.get())
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())
        try:
            result: T = await asyncio.shield(call.answer)
        except asyncio.CancelledError:
            await self._let_it_end(call)
            raise
        return result

    async def _let_it_end(self, call: Call) -> None:
        """Wait until an abandoned call has ended, so that later calls do not overlap with it."""
        call.answer.cancel()  # a cancelled call that has not started never starts
        while not (call.ended.done() or self.silent):
            await asyncio.wait([call.ended], timeout=_LOOK_EVERY)

    async def _look(self) -> None:
        """Check whether the disk answers, as long as calls are in progress or the disk is silent."""
        probe: Call | None = None
        while self.silent or probe or self._oldest() is not None:
            now, oldest = time.monotonic(), self._oldest()
            if probe is None and (self.silent or (oldest is not None and now - oldest > _PROBE_AFTER)):
                probe = self._probe.submit(self._read_marker)
            elif probe is not None and probe.ended.done():
                self.silent, probe = False, None
                await asyncio.sleep(_SILENT_AFTER)
            elif probe is not None and now - probe.asked_at > _SILENT_AFTER:
                self.silent = True
                for workers in (self._quick, self._long):
                    workers.give_up(lambda: StorageSilent(self.name))
            await asyncio.sleep(_LOOK_EVERY)

    def _oldest(self) -> float | None:
        return min((at for at in (self._quick.oldest(), self._long.oldest()) if at is not None), default=None)

    def _read_marker(self) -> Any:
        try:
            return self.marker()
        except StorageMissing:
            return None  # the disk answers, even if the marker is missing


_LIBC = ctypes.CDLL(None, use_errno=True)
_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Use the file rights of user ``uid``, and the group of the same number, in this thread. Does nothing unless root.

    Linux keeps these ids per thread; while they are set, capabilities that override file modes are inactive.
    """
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    groups = os.getgroups()
    _set_groups([])
    _LIBC.setfsgid(uid)
    _LIBC.setfsuid(uid)
    try:
        if _LIBC.setfsuid(-1) != uid:  # -1 changes nothing and returns the current id
            raise PermissionError(f"cannot act as the user {uid}")
        yield
    finally:
        _LIBC.setfsuid(0)
        _LIBC.setfsgid(os.getegid())
        _set_groups(groups)


def _set_groups(groups: list[int]) -> None:
    """Set the groups of this thread only; the C library's function would change all threads."""
    if _SETGROUPS is not None:
        array = (ctypes.c_uint32 * len(groups))(*groups)
        _LIBC.syscall(_SETGROUPS, len(groups), array)
