"""A native kernel's folder with all data about it, so that any agent can take the kernel over.

``spec.json``: the order. ``launch.json``: how it was started. ``runner.json``: its supervisor. ``frozen.json``: the
processes that ``freeze`` has stopped. ``stop.json``: the order to end it. ``exit.json``: how it ended. ``output.log``:
its output. ``home``: its scratch folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from pydantic import ValidationError

from backendai.agent.backends.base import BackendError, Ended, ended_by_itself, ended_short_of_memory
from backendai.agent.backends.native.cgroup import FREEZE_SECONDS, hold, members
from backendai.agent.backends.native.runner import remove_traces, start_time, stat_fields
from backendai.agent.backends.shared.trees import make_removable, remove_tree
from backendai.base.core.slots import format_size
from backendai.base.wire.messages import KernelSighting, KernelSpec

SUPERVISES = "BACKENDAI_SUPERVISES"  # a supervisor's variable with its kernel's id
_MARK = "BACKENDAI_KERNEL_ID"
_STILL: tuple[list[str], ...] = ([], ["T"], ["t"], ["Z"], ["X"])  # states of processes
_LOST = "The supervisor of the kernel is gone: it was killed, or the machine was restarted."


class KernelFolder:
    """Reads, writes and evaluates one kernel's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kernel_id = UUID(path.name)
        self.log = path / "output.log"

    def spec(self) -> KernelSpec | None:
        """Return the kernel's spec; None if the folder is not a kernel's."""
        try:
            return KernelSpec.model_validate_json((self.path / "spec.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def read(self, name: str) -> dict[str, Any]:
        """Return the object in the named file; empty if there is none."""
        try:
            value: dict[str, Any] = json.loads((self.path / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return value

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write the named file atomically, readable only by the agent, as environments contain secrets."""
        draft = self.path / f"{name}.draft"
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(value))
        draft.replace(self.path / f"{name}.json")

    def runner(self) -> int | None:
        """Return the live supervisor's pid; None if it has ended. Detects a reused pid."""
        known = self.read("runner")
        alive = bool(known) and start_time(known["pid"]) == known["started"]
        return known["pid"] if alive else None

    def running(self) -> bool:
        """Return whether the kernel runs."""
        return not (self.path / "exit.json").exists() and self.runner() is not None

    def started(self) -> bool:
        """Return whether the kernel has ever run."""
        return (self.path / "runner.json").exists()

    def container_id(self) -> str:
        """Return an id of this run of the kernel; empty if it never started."""
        known = self.read("runner")
        return f"process-{known['pid']}-{known['started']}" if known else ""

    def sighting(self) -> KernelSighting | None:
        """Return the kernel's state for the portal; None if it never started."""
        spec = self.spec()
        if spec is None or not self.started():
            return None
        running = self.running()
        return KernelSighting(
            kernel_id=self.kernel_id,
            generation=spec.generation,
            running=running,
            frozen=running and bool(self.read("frozen")),
            container_id=self.container_id(),
            exit_code=None if running else self.read("exit").get("exit_code"),
        )

    def ended(self) -> Ended | None:
        """Return how the kernel ended; None while it runs. If the supervisor was lost, kills the kernel's remaining
        processes."""
        if self.running():
            return None
        if not (self.path / "exit.json").exists():  # checked again, as the supervisor writes it last
            self.kill()
            with contextlib.suppress(OSError):  # the folder is deleted or the disk full
                self.write("exit", {"exit_code": None, "reason": "exited", "message": _LOST})
        ending = self.read("exit")
        code, message = ending.get("exit_code"), ending.get("message", "")
        if code is not None and (limit := ending.get("starved_at")):
            return ended_short_of_memory(code, limit)
        if code is not None and not message and not ending.get("limit"):
            return replace(ended_by_itself(code), reason=ending.get("reason", "exited"))
        return Ended(code, ending.get("reason", "exited"), message or _describe(ending), has_cause=bool(message))

    def freeze(self) -> None:
        """Let all processes but the supervisor stand still: by the kernel's control group, else one by one. Raises
        BackendError."""
        stopped: list[int] = self.read("frozen").get("pids", [])
        try:
            self.write("frozen", {"pids": stopped})  # first, so that a later agent knows it
            if not hold(self._cgroups(), still=True):
                self._stop_each(stopped)
        except OSError as error:
            raise BackendError("The session cannot be frozen: {error}.", error=str(error), code="not-frozen") from error

    def thaw(self) -> None:
        """Let the processes go on that ``freeze`` has stopped."""
        if stopped := self.read("frozen"):
            with contextlib.suppress(OSError):  # the kernel has ended
                hold(self._cgroups(), still=False)
            here = self.processes()
            _signal([pid for pid in reversed(stopped["pids"]) if pid in here], signal.SIGCONT)
            (self.path / "frozen.json").unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill the supervisor and all remaining processes of the kernel."""
        launch, victims = self.read("launch"), self.processes()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid) for pid in victims if psutil.pid_exists(pid)], timeout=5)
        if launch:
            remove_traces(launch)

    def processes(self) -> set[int]:
        """Return the supervisor and all processes of the kernel, including detached ones."""
        runner = self.runner()
        found = members(self._cgroups()) | self._marked()
        if runner is not None:
            with contextlib.suppress(psutil.Error):
                found |= {child.pid for child in psutil.Process(runner).children(recursive=True)} | {runner}
        return found

    def remove(self) -> None:
        """Delete the folder, including parts that the kernel made unreadable."""
        remove_tree(self.path)
        if self.path.exists():
            make_removable(self.path)
            remove_tree(self.path)

    def _stop_each(self, stopped: list[int]) -> None:
        """Stop the processes that do not stand still, and add them to ``stopped`` and its file. Raises TimeoutError."""
        runner, deadline = self.runner(), time.monotonic() + FREEZE_SECONDS
        while moving := [pid for pid in self.processes() - {runner} if stat_fields(pid)[:1] not in _STILL]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {FREEZE_SECONDS:g} s")
            moving.sort(key=start_time)  # parents first: a shell must not see that its jobs were stopped
            stopped += [pid for pid in moving if pid not in stopped]
            self.write("frozen", {"pids": stopped})
            _signal(moving, signal.SIGSTOP)
            time.sleep(0.01)  # another round finds those that were being started

    def _cgroups(self) -> list[Path]:
        return [Path(cgroup) for cgroup in self.read("launch").get("cgroups", [])]

    def _marked(self) -> set[int]:
        """Return the processes with the kernel's id in their environment. Includes a supervisor whose kernel has not
        started yet."""
        wanted, found = str(self.kernel_id), set()
        for process in psutil.process_iter(["environ"]):
            environ = process.info["environ"] or {}
            if wanted in (environ.get(_MARK), environ.get(SUPERVISES)) and process.pid != os.getpid():
                found.add(process.pid)
        return found


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _describe(ending: dict[str, Any]) -> str:
    if not ending.get("limit"):
        return ""
    used = f" used {format_size(ending['used'])} of memory, more than" if ending["used"] else " used up"
    return f"The kernel{used} its {format_size(ending['limit'])}."
