"""Sends changes of runs to a reader as they happen."""

from __future__ import annotations

import asyncio
from typing import Any, Mapping  # noqa: UP035

from backendai.agent.guest.code.checking import ChangeSignal
from backendai.agent.guest.code.run import Run
from backendai.agent.guest.home.items import encoded

LISTED_CODE = 16 * 1024  # characters of code in a list of runs
_BEAT_SECONDS = 15.0
_FOLLOWED = 64 * 1024


class Follower:
    """Sends states and items of ``runs`` to one reader, starting at the offsets in ``after``."""

    def __init__(self, runs: Mapping[str, Run], after: dict[str, int], writer: asyncio.StreamWriter) -> None:
        self._runs, self._after, self._writer = runs, after, writer
        self._number = 0

    async def follow(self, changes: ChangeSignal) -> None:
        """Send until the reader disconnects. Skips runs that have already ended, unless they are in ``after`` or newer
        than all there: it started and ended after the reader read the list of runs."""
        known = [run.number for key, run in self._runs.items() if key in self._after]
        newest = max(known, default=max((run.number for run in self._runs.values()), default=0))
        seen = {
            key: -1 for key, run in self._runs.items() if key in self._after or not run.has_ended or run.number > newest
        }
        self._number = max((run.number for run in self._runs.values()), default=0)
        while True:
            for run in [run for run in self._runs.values() if run.number > self._number]:
                seen.setdefault(run.run_id, -1)
                self._number = run.number
            is_behind = False
            for run in [run for run in self._runs.values() if self._has_news(run, seen)]:
                is_behind |= await self._pass_on(run, seen)
            if not is_behind:
                await changes.next(_BEAT_SECONDS)
                if self._writer.is_closing():
                    return
                self._writer.write(b"\n")  # detects a disconnected reader
                await self._writer.drain()

    def _has_news(self, run: Run, seen: dict[str, int]) -> bool:
        """Return whether the run's state or output changed since it was sent. Fast, as most runs ended long ago."""
        told = seen.get(run.run_id)
        return told is not None and (run.version != told or run.output.log.end > self._after.get(run.run_id, 0))

    async def _pass_on(self, run: Run, seen: dict[str, int]) -> bool:
        """Send a run's next changes; returns whether more are left."""
        version, after = run.version, self._after.get(run.run_id, 0)
        told = run.read(after, _FOLLOWED)
        if told["items"] or version != seen[run.run_id]:
            if told["offset"] < told["end"] and run.has_ended:
                told["state"] = "RUNNING"  # the end is sent with the last items
            else:
                seen[run.run_id] = version
            if after == 0:
                told.update(beginning_of(run))
            self._after[run.run_id] = told["offset"]
            self._writer.write(encoded(told))
            await self._writer.drain()
        return bool(told["offset"] < run.output.log.end)


def beginning_of(run: Run) -> dict[str, Any]:
    """Return the beginning of a run's code, and the code's length in characters."""
    code = str(run.record["code"])
    return {"code": code[:LISTED_CODE], "code_length": len(code)}
