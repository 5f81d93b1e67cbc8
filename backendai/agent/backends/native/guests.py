"""Guest agents in native kernels: the kernel's first process starts them as its user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.guest_host import INSIDE, PROGRAM, GuestPlace
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.sandbox import GUEST
from backendai.agent.backends.native.terminal import request_program


class SupervisedGuests(GuestPlace):
    """``running`` returns the folder of a running kernel, or raises KernelGone; ``find`` returns any kernel's."""

    def __init__(self, running: Callable[[UUID], KernelFolder], find: Callable[[UUID], KernelFolder | None]) -> None:
        self._running, self._find = running, find

    def folder(self, kernel_id: UUID) -> Path:
        return self._running(kernel_id).path / GUEST

    def was_launched(self, kernel_id: UUID) -> bool:
        folder = self._find(kernel_id)
        return folder is not None and (folder.path / GUEST / PROGRAM).exists()


class NativeGuests(SupervisedGuests):
    """The guests of native kernels."""

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest by the kernel's first process. Interpreters do not use the loopback, which is the
        machine's."""
        place = self.folder(kernel_id)
        is_shut_in = INSIDE in self._running(kernel_id).read("launch").get("argv", [])
        inside = INSIDE if is_shut_in else str(place)
        request_program(place.parent, ["python3", "-I", "-S", f"{inside}/{PROGRAM}", "serve", inside, "ipc-only"])
