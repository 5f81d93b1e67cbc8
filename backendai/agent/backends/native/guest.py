"""Guest agents in native kernels: the kernel's first process starts them as its user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.backends.guest_host import INSIDE, PROGRAM, GuestPlace
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.sandbox import GUEST
from backendai.agent.backends.native.terminal import request_program


class ProcessGuests(GuestPlace):
    """``find`` returns the folder of a kernel of this agent, or None."""

    def __init__(self, find: Callable[[UUID], KernelFolder | None]) -> None:
        self._find = find

    def folder(self, kernel_id: UUID) -> Path:
        """Return the guest's folder. Raises BackendError for a kernel of an older version without it."""
        folder = self._find(kernel_id)
        if folder is None or not folder.running():
            raise KernelGone("Kernel {kernel_id} is not running on this agent.", kernel_id=kernel_id)
        if not (folder.path / GUEST).is_dir():
            text = "The session was started before the agent was updated: start a new session to run code in it."
            raise BackendError(text, code="started-before-update")
        return folder.path / GUEST

    def was_launched(self, kernel_id: UUID) -> bool:
        """Return whether the guest's program is in the folder."""
        folder = self._find(kernel_id)
        return folder is not None and (folder.path / GUEST / PROGRAM).exists()

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest by the kernel's first process. Interpreters do not use the loopback, which is the
        machine's."""
        place = self.folder(kernel_id)
        inside = INSIDE if self._is_shut_in(kernel_id) else str(place)
        argv = ["python3", "-I", "-S", f"{inside}/{PROGRAM}", "serve", inside, "ipc-only"]
        request_program(place.parent, argv)

    def _is_shut_in(self, kernel_id: UUID) -> bool:
        folder = self._find(kernel_id)
        argv = folder.read("launch").get("argv", []) if folder is not None else []
        return INSIDE in argv
