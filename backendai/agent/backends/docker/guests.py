"""Guest agents in containers: each is started by a detached exec as the session's user."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from backendai.agent.backends.docker.disk.scratch import Scratch
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.guest_host import PROGRAM, GuestPlace
from backendai.agent.backends.shared.kit import guest_command


class DockerGuests(GuestPlace):
    """The guests of one agent's containers."""

    def __init__(self, engine: Engine, scratch: Scratch) -> None:
        self._engine, self._scratch = engine, scratch

    def folder(self, kernel_id: UUID) -> Path:
        """Return the folder that the container mounts. Raises KernelGone if it does not run."""
        with self._engine.asking():
            self._engine.running(kernel_id)
        return self._scratch.guest(kernel_id)

    def was_launched(self, kernel_id: UUID) -> bool:
        """Return whether the guest's program is in the folder."""
        return (self._scratch.guest(kernel_id) / PROGRAM).exists()

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest by an exec. Uses the image's interpreter, else the first Python found, else the kit's."""
        self._scratch.kit.ensure()
        with self._engine.asking():
            labels = self._engine.running(kernel_id)["Config"]["Labels"] or {}
            self._engine.make_exec(kernel_id, guest_command(labels), starts=True)
