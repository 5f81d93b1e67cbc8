"""Guest agents in virtual machines: their program and their connections to the agent go through the channel."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from backendai.agent.backends.guest_host import INSIDE, PROGRAM, program
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.guests import SupervisedGuests
from backendai.agent.backends.qemu.channel.ask import open_stream, put_file
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.backends.shared.kit import guest_command
from backendai.base.process.slowness import allowed

_COMPILING = 2  # compiling slows down this much more than other work in emulation


class QemuGuests(SupervisedGuests):
    """``slower``: the factor by which these virtual machines are slower."""

    def __init__(
        self,
        running: Callable[[UUID], KernelFolder],
        find: Callable[[UUID], KernelFolder | None],
        slower: Callable[[], int],
    ) -> None:
        super().__init__(running, find)
        self._slower = slower

    def longest_start(self) -> float:
        """Return the longest start. An emulated Python compiles the program for 30 s, over a minute on a busy
        machine."""
        slower = self._slower()
        return allowed(self.start_seconds, own=slower * (_COMPILING if slower > 1 else 1))

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest as the kernel's user, with the first Python that is new enough."""
        folder = self._running(kernel_id)
        put_file(folder.path, f"{INSIDE}/{PROGRAM}", program())
        command = guest_command(folder.read("launch").get("labels", {}))
        connection, _ = open_stream(folder.path, "d", program_words(command, {}))
        connection.close()
