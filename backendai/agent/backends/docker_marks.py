"""The marks of network holders that no kernel has used, one empty file each, in a folder of this agent alone.

A folder that cannot be written is a fault of this machine and not of the container engine: it costs the networks that
are ready in advance, and no kernel its start. What may have a mark that could not be taken away is given to nobody.
"""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import BackendError

logger = logging.getLogger(__name__)


class Marks:
    """The files in ``folder``; safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, holder_id: UUID) -> None:
        """Make the mark, and the folder unless it is there. Raises BackendError."""
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
        """Remove the mark; return whether it was there and is gone now."""
        try:
            self._path(holder_id).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.warning("the mark of an unused network cannot be removed on this machine: %s", error)
            return False
        return True

    def all(self) -> set[UUID]:
        """Return whose marks are there; what cannot be read is not."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            logger.warning("the marks of unused networks cannot be read on this machine: %s", error)
            return set()
        return {holder_id for name in names if (holder_id := _holder_id(name))}

    def _path(self, holder_id: UUID) -> Path:
        return self._folder / str(holder_id)


def _holder_id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
