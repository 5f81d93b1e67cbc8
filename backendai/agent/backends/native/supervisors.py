"""Starts supervisors of kernels, each in its own session, so that they outlive the agent."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from uuid import UUID

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native.folder import SUPERVISES, KernelFolder
from backendai.agent.backends.native.places import KERNEL_USERS


class Supervisors:
    """The supervisors that this agent started. ``words``: the arguments for Python; supervisors use only the standard
    library."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, folder: KernelFolder, timeout: float) -> bool:
        """Start a kernel's supervisor; returns whether the kernel started in time. Raises OSError."""
        heard, ready = os.pipe()
        try:
            try:
                runner = self._launch(folder, ready)
            finally:
                os.close(ready)
            with self._lock:
                self._running.append(runner)
            told, _, _ = select.select([heard], [], [], timeout)
            return bool(told) and os.read(heard, 16) == b"started"
        finally:
            os.close(heard)

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


def free_user(kernel_id: UUID, taken: Collection[int | None]) -> int:
    """Return a free user id for a kernel. Raises StartFailed."""
    first = kernel_id.int % len(KERNEL_USERS)  # so that two portals on one machine rarely choose the same
    in_turn: list[int] = [*KERNEL_USERS[first:], *KERNEL_USERS[:first]]
    for number in in_turn:
        if number not in taken:
            return number
    raise StartFailed("All {count} user ids for kernels are in use.", count=len(KERNEL_USERS))
