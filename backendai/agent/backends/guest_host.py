"""The interface of backends for guest agents, and the guest agent's program."""

from __future__ import annotations

import abc
import asyncio
import io
import zipfile
from functools import cache
from pathlib import Path
from uuid import UUID

from backendai.base.paths.installation import IMPORTED_FROM, PACKAGE
from backendai.base.process.slowness import allowed

PROGRAM = "guest.pyz"
INSIDE = "/run/backendai"  # the mount point, in kernels, of the folder with program and socket
# The only modules of other rooms that guests use.
_SHARED = ("base/process/slowness.py", "base/paths/packing.py", "base/wire/guest_frames.py", "base/wire/splice.py")
_EMPTY = ("", "agent/", "base/", "base/process/", "base/paths/", "base/wire/")
_MAIN = "from backendai.agent.guest.serve import main\n\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time stamp: equal sources give equal bytes


class GuestPlace(abc.ABC):
    """A backend whose guest agents are processes inside its kernels. Methods block. ``start_seconds``: the longest
    start on a usual machine."""

    start_seconds = 20.0

    def longest_start(self) -> float:
        """Return the longest start on this machine now, in seconds."""
        return allowed(self.start_seconds)

    @abc.abstractmethod
    def folder(self, kernel_id: UUID) -> Path:
        """Return the host path of the folder that the kernel mounts for its guest. Raises KernelGone and
        BackendError."""

    @abc.abstractmethod
    def was_launched(self, kernel_id: UUID) -> bool:
        """Return whether a guest was ever started in the kernel. Does not call the engine."""

    @abc.abstractmethod
    def launch(self, kernel_id: UUID) -> None:
        """Start the program in the kernel as the kernel's user; does not wait for its end. Raises KernelGone,
        BackendError."""


class InProcessGuests(abc.ABC):
    """A backend whose guests are objects of the agent's process."""

    @abc.abstractmethod
    async def open(self, kernel_id: UUID) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection for one question. Raises KernelGone."""

    @abc.abstractmethod
    def working(self) -> set[UUID]:
        """Return the kernels in which code runs. Thread-safe."""


GuestHost = GuestPlace | InProcessGuests


@cache
def program() -> bytes:
    """Return the guest agent as one zip file for any Python: this package with only the guest's modules."""
    sources = {f"backendai/{name}__init__.py": "" for name in _EMPTY} | {"__main__.py": _MAIN}
    files = [*sorted((PACKAGE / "agent" / "guest").rglob("*.py")), *(PACKAGE / name for name in _SHARED)]
    sources |= {path.relative_to(IMPORTED_FROM).as_posix(): path.read_text() for path in files}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
