"""Marks of network holders that no kernel has used: one empty file each, in a folder of this agent.

If the folder is not writable, no networks are prepared, but kernels still start. A holder whose mark could not be
deleted is given to no kernel.
"""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.shared.trees import ids_in

logger = logging.getLogger(__name__)


class HolderMarks:
    """The files in ``folder``. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, holder_id: UUID) -> None:
        """Create the mark, and the folder if needed. Raises BackendError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path(holder_id).touch()
        except OSError as error:
            raise BackendError(
                "The agent cannot write the mark of an unused network on this machine: {error}.",
                error=str(error),
                code="mark-failed",
            ) from error

    def take(self, holder_id: UUID) -> bool:
        """Delete the mark; returns whether it existed and is gone."""
        try:
            self._path(holder_id).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.warning("the mark of an unused network cannot be removed on this machine: %s", error)
            return False
        return True

    def all(self) -> set[UUID]:
        """Return the holders that have marks; empty if the folder cannot be read."""
        try:
            return ids_in(self._folder)
        except OSError as error:
            logger.warning("the marks of unused networks cannot be read on this machine: %s", error)
            return set()

    def _path(self, holder_id: UUID) -> Path:
        return self._folder / str(holder_id)
