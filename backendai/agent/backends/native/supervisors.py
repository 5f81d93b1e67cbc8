"""Starts kernels that each have a folder and a supervisor in its own session, so that both outlive the agent."""

from __future__ import annotations

import abc
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import BackendError, Started, StartFailed, with_cause
from backendai.agent.backends.native import cgroup as process_cgroup
from backendai.agent.backends.native.folder import SUPERVISES, KernelFolder
from backendai.agent.backends.native.places import KERNEL_USERS, KernelPlaces
from backendai.agent.backends.shared.starting import KernelStarter, Occupant
from backendai.agent.mounts.hosts import MountRules
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import KernelSpec


class Supervisors:
    """The supervisors that this agent started. ``words``: the arguments for Python; supervisors use only the standard
    library."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, folder: KernelFolder, timeout: float) -> bool:
        """Start a kernel's supervisor; returns whether the kernel started in time. Raises OSError."""
        report, ready = os.pipe()
        try:
            try:
                runner = self._launch(folder, ready)
            finally:
                os.close(ready)
            with self._lock:
                self._running.append(runner)
            readable, _, _ = select.select([report], [], [], timeout)
            return bool(readable) and os.read(report, 16) == b"started"
        finally:
            os.close(report)

    def _launch(self, folder: KernelFolder, ready: int) -> subprocess.Popen[bytes]:
        (folder.path / "runner.log").touch(mode=0o600)
        with (folder.path / "runner.log").open("wb") as complaints:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", *self._words, str(folder.path.resolve()), str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                env={"PATH": os.environ.get("PATH", os.defpath), SUPERVISES: str(folder.kernel_id)},
                cwd="/",
                pass_fds=(ready,),
                start_new_session=True,
            )

    def reap(self) -> None:
        """Reap supervisors that have ended."""
        with self._lock:
            self._running = [runner for runner in self._running if runner.poll() is None]


class SupervisedStarter(KernelStarter[KernelFolder]):
    """``clear`` ends a kernel and deletes its folder. ``words``: the arguments for Python that run a supervisor."""

    def __init__(
        self,
        places: KernelPlaces,
        mounts: KernelMounts,
        words: Sequence[str],
        *,
        deployment: str,
        clear: Callable[[KernelFolder], None],
    ) -> None:
        super().__init__(deployment)
        self.places, self.mounts, self._clear = places, mounts, clear
        self.cgroups = process_cgroup.find_parents()
        self._choosing = threading.Lock()  # held until a chosen user id is saved
        self._supervisors = Supervisors(words)

    @abc.abstractmethod
    def mount_rules(self) -> MountRules:
        """Return the rules about mounts."""

    @abc.abstractmethod
    def _prepare(self, spec: KernelSpec, folder: KernelFolder) -> None:
        """Create the folder with everything that the supervisor reads. Raises OSError, SubprocessError,
        BackendError."""

    @abc.abstractmethod
    def _last_words(self, folder: KernelFolder) -> str:
        """Return the end of the output of a kernel that does not start."""

    def reap(self) -> None:
        """Reap supervisors that have ended."""
        self._supervisors.reap()

    def _find(self, spec: KernelSpec) -> KernelFolder | None:
        folder = self.places.find(spec.kernel_id)
        return folder if folder.path.exists() else None

    def _occupant(self, found: KernelFolder) -> Occupant:
        known = found.spec()
        if known is None:
            return Occupant(self._deployment, generation=-1, is_whole=False)
        return Occupant(known.deployment, known.generation, is_whole=found.started())

    def _discard(self, spec: KernelSpec, found: KernelFolder) -> None:
        self._clear(found)

    def _create(self, spec: KernelSpec) -> KernelFolder | None:
        if self._find(spec) is not None:
            return None
        folder = KernelFolder(self.places.for_new() / str(spec.kernel_id))
        text = "The kernel does not start: {error}"
        try:
            self._prepare(spec, folder)
            if not self._supervisors.start(folder, spec.create_timeout):
                late = Message("it did not run within {seconds} s.", seconds=f"{spec.create_timeout:g}")
                raise StartFailed(
                    text, error=folder.read("exit").get("failed") or self._last_words(folder) or with_cause(late)
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._undo(folder)
            raise StartFailed(text, error=str(error)) from error
        except BackendError:
            self._undo(folder)
            raise
        return folder

    def _run(self, spec: KernelSpec, found: KernelFolder, deadline: float, *, adopted: bool) -> Started:
        return Started(found.container_id(), adopted=adopted)

    def _make_folder(self, spec: KernelSpec, folder: KernelFolder) -> None:
        folder.path.mkdir(mode=0o700)
        folder.write("spec", spec.model_dump(mode="json", exclude={"files", "bootstrap", "keys"}))

    def _limits(self, spec: KernelSpec, *, pids: int) -> dict[str, Any]:
        """Return the part of the launch data about limits; creates the kernel's control groups."""
        made = process_cgroup.make(self.cgroups, f"backendai-{spec.kernel_id}", Slots.parse(spec.slots), pids=pids)
        return {"log_bytes": spec.log_bytes, "cgroups": [str(cgroup) for cgroup in made]}

    def _free_user(self, kernel_id: UUID) -> int:
        """Return a free user id. Raises StartFailed."""
        taken = {folder.read("launch").get("uid") for folder in self.places.folders()}
        first = kernel_id.int % len(KERNEL_USERS)  # so that two portals on one machine rarely choose the same
        in_turn: list[int] = [*KERNEL_USERS[first:], *KERNEL_USERS[:first]]
        for number in in_turn:
            if number not in taken:
                return number
        raise StartFailed("All {count} user ids for kernels are in use.", count=len(KERNEL_USERS))

    def _undo(self, folder: KernelFolder) -> None:
        self.mounts.remove(folder.kernel_id)
        if folder.path.exists():
            folder.kill()
            folder.remove()
        self.reap()
