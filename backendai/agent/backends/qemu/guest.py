"""Guest agents in virtual machines: their program and their connections to the agent go through the channel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import SH
from backendai.agent.backends.docker.create import WORKDIR
from backendai.agent.backends.docker.guest import IS_NEW_ENOUGH, LAUNCH, RUNTIME
from backendai.agent.backends.guest_host import INSIDE, PROGRAM, GuestPlace, program
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.qemu.channel.ask import open_stream, put_file
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.backends.shared.home import WAIT
from backendai.base.process.slowness import allowed

_COMPILING = 2  # compiling slows down this much more than other work in emulation


class MachineGuests(GuestPlace):
    """``running`` returns the folder of a running kernel, or raises KernelGone; ``find`` returns any kernel's.
    ``slower``: the factor by which these virtual machines are slower."""

    def __init__(
        self,
        running: Callable[[UUID], KernelFolder],
        find: Callable[[UUID], KernelFolder | None],
        slower: Callable[[], int],
    ) -> None:
        self._running, self._find, self._slower = running, find, slower

    def longest_start(self) -> float:
        """Return the longest start. An emulated Python compiles the program for 30 s, over a minute on a busy
        machine."""
        slower = self._slower()
        return allowed(self.start_seconds, own=slower * (_COMPILING if slower > 1 else 1))

    def folder(self, kernel_id: UUID) -> Path:
        """Return the folder of this side's socket."""
        return self._running(kernel_id).path / "guest"

    def was_launched(self, kernel_id: UUID) -> bool:
        """Return whether the guest's program is in the folder."""
        folder = self._find(kernel_id)
        return folder is not None and (folder.path / "guest" / PROGRAM).exists()

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest as the kernel's user, with the first Python that is new enough."""
        folder = self._running(kernel_id)
        put_file(folder.path, f"{INSIDE}/{PROGRAM}", program())
        runtime = folder.read("launch").get("labels", {}).get(RUNTIME, "")
        command = [SH, "-c", WAIT, "wait", WORKDIR, SH, "-c", LAUNCH, "guest", runtime, IS_NEW_ENOUGH]
        connection, _ = open_stream(folder.path, "d", program_words(command, {}))
        connection.close()
