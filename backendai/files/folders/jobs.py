"""Runs long background jobs on folders: clones, removals, measurements. Continues them after a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal
from uuid import UUID

from backendai.files.entries.tree import Size
from backendai.files.folders import cloning, measuring, sweeping
from backendai.files.folders.progress import Progress, Stopped
from backendai.files.hosts import Host
from backendai.files.http.serving import Server
from backendai.files.refusals import as_refusal

logger = logging.getLogger(__name__)

Kind = Literal["clone", "measure", "remove"]
_KEPT_ERRORS = 1000
_KEPT_SIZES = 200
_RESTS = 20  # the pause between measurements, as a multiple of the last one's duration: limits the disk's load
_SWEEP_EVERY, _RETRY_AFTER = 3600.0, 10.0


@dataclass(slots=True)
class Job:
    """One job, with its progress and its error."""

    progress: Progress
    error: str = ""
    is_done: bool = False


class Jobs:
    """The jobs of all hosts of this server; each kind runs once for a folder."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._jobs: dict[tuple[str, Kind, UUID], Job] = {}
        self._soon: set[tuple[str, UUID]] = set()
        self._sizes: dict[tuple[str, UUID], tuple[Size, float]] = {}  # size, and duration of its measurement

    def describe(self, host: Host, folder_id: UUID) -> dict[str, Any]:
        """Return progress and error of the clone or the removal of a folder."""
        for kind in ("clone", "remove"):
            if job := self._jobs.get((host.name, kind, folder_id)):
                told = None if job.is_done else asdict(job.progress.shown())
                return {"progress": told, "error": job.error or None}
        return {"progress": None, "error": None}

    def is_measuring(self, host: Host, folder_id: UUID) -> bool:
        """Return whether the folder is being measured."""
        job = self._jobs.get((host.name, "measure", folder_id))
        return job is not None and not job.is_done

    def clone(self, host: Host, folder_id: UUID) -> None:
        """Fill a folder that waits in ``.staging`` with the files of its source."""

        async def work(progress: Progress) -> None:
            linkable = self._server.linkable
            try:
                await host.run_in_background("clone", cloning.fill, folder_id, linkable, progress)
            except Stopped:
                raise
            except Exception:
                if await host.run(cloning.give_up, folder_id):
                    self.remove(host, folder_id)
                raise

        self._start(host, "clone", folder_id, work)

    def remove(self, host: Host, folder_id: UUID) -> None:
        """Delete the folder's data that was moved aside."""
        self._stop(host, "clone", folder_id)

        async def work(progress: Progress) -> None:
            await host.run_in_background("remove", sweeping.remove, folder_id, progress)

        self._start(host, "remove", folder_id, work)

    def measure(self, host: Host, folder_id: UUID) -> None:
        """Measure a folder."""
        ledger = self._server.ledger

        async def work(progress: Progress) -> None:
            before, at, began = ledger.written(folder_id), self._server.clock(), time.monotonic()
            size = await host.run_in_background("measure", measuring.measure, folder_id, at, progress)
            ledger.forget(folder_id, before)
            self._sizes.pop((host.name, folder_id), None)
            self._sizes[host.name, folder_id] = size, time.monotonic() - began
            if len(self._sizes) > _KEPT_SIZES:
                del self._sizes[next(iter(self._sizes))]

        self._start(host, "measure", folder_id, work)

    def measure_soon(self, host: Host, folder_id: UUID) -> None:
        """Measure a changed folder after a short delay, so that many changes are measured once."""
        if (key := (host.name, folder_id)) not in self._soon:
            self._soon.add(key)
            self._server.later(self._measure_after_rest(host, folder_id))

    def measured(self, host: Host) -> list[dict[str, Any]]:
        """Return the newest sizes of folders of a host."""
        found = list(self._sizes.items())
        return [{"id": str(folder), **asdict(size)} for (name, folder), (size, _) in found if name == host.name]

    async def _measure_after_rest(self, host: Host, folder_id: UUID) -> None:
        key, pause = (host.name, folder_id), self._server.settled_after
        _, took = self._sizes.get(key, (None, 0.0))
        await asyncio.sleep(max(pause, _RESTS * took))
        self._soon.discard(key)
        # A running measurement may have missed the change.
        again = self.measure_soon if self.is_measuring(host, folder_id) else self.measure
        again(host, folder_id)

    async def keep_up(self, host: Host) -> None:
        """Continue jobs that a restart interrupted, and delete old leftovers, for ever."""
        while True:
            try:
                found = await host.run_in_background("sweep", sweeping.unfinished, now=self._server.clock())
                for folder_id in found.clones:
                    self.clone(host, folder_id)
                for folder_id in found.removals:
                    self.remove(host, folder_id)
                await host.run_in_background("sweep", sweeping.sweep, now=self._server.clock())
                pause = _SWEEP_EVERY
            except Exception as error:
                logger.warning("storage host %s cannot be swept: %s", host.name, error)
                pause = _RETRY_AFTER
            await asyncio.sleep(pause)

    def _start(self, host: Host, kind: Kind, folder_id: UUID, work: Callable[[Progress], Awaitable[None]]) -> None:
        key = (host.name, kind, folder_id)
        if (former := self._jobs.get(key)) and not former.is_done:
            return
        self._jobs[key] = job = Job(Progress())
        self._server.later(self._run(key, job, work))

    def _stop(self, host: Host, kind: Kind, folder_id: UUID) -> None:
        if job := self._jobs.get((host.name, kind, folder_id)):
            job.progress.stopped.set()

    async def _run(self, key: tuple[str, Kind, UUID], job: Job, work: Callable[[Progress], Awaitable[None]]) -> None:
        began = time.monotonic()
        try:
            await work(job.progress)
        except Stopped:
            logger.info("%s of folder %s was stopped", key[1], key[2])
        except Exception as error:
            refusal = as_refusal(error)
            job.error = refusal.message if refusal else "The file server has failed; its log says more."
            logger.warning("%s of folder %s has failed: %s", key[1], key[2], error, exc_info=refusal is None)
        else:
            logger.info("%s of folder %s took %.1f s", key[1], key[2], time.monotonic() - began)
        finally:
            job.is_done = True
            if not job.error:
                self._jobs.pop(key, None)
            for old in list(self._jobs)[: max(0, len(self._jobs) - _KEPT_ERRORS)]:
                if self._jobs[old].is_done:
                    del self._jobs[old]
