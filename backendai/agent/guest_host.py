"""What a backend does for the guest agents of its kernels, and the program that they are."""

from __future__ import annotations

import abc
import asyncio
import io
import zipfile
from functools import cache
from pathlib import Path
from uuid import UUID

PROGRAM = "guest.pyz"
INSIDE = "/run/backendai"  # where kernels find program and socket, if something is mounted for them
_HERE = Path(__file__).parent / "guest"
_MAIN = "from backendai.agent.guest.serve import main\n\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes from the same source


class GuestPlace(abc.ABC):
    """Kernels with guests that are processes in them. Methods block. ``start_seconds``: how long a start may take."""

    start_seconds = 20.0

    @abc.abstractmethod
    def folder(self, kernel_id: UUID) -> Path:
        """Return the folder, as this process sees it, that the kernel has mounted for its guest. Raises KernelGone,
        BackendError (``started-before-update``: the kernel has none)."""

    @abc.abstractmethod
    def was_launched(self, kernel_id: UUID) -> bool:
        """Return whether a guest was started in the kernel, now or earlier; asks no engine."""

    @abc.abstractmethod
    def launch(self, kernel_id: UUID) -> None:
        """Start the program in the kernel, with the rights of its user, without waiting for its end. Raises
        KernelGone, BackendError."""


class InProcessGuests(abc.ABC):
    """Kernels whose guest is an object of this process."""

    @abc.abstractmethod
    async def open(self, kernel_id: UUID) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection for one question. Raises KernelGone."""

    @abc.abstractmethod
    def working(self) -> set[UUID]:
        """Return the kernels in which code runs; any thread may ask."""


GuestHost = GuestPlace | InProcessGuests


@cache
def program() -> bytes:
    """Return the guest as one file that any Python runs: our package with nothing but the guest in it."""
    packages = ("backendai/__init__.py", "backendai/agent/__init__.py")
    sources = {name: "" for name in packages} | {"__main__.py": _MAIN}
    sources |= {f"backendai/agent/guest/{path.name}": path.read_text() for path in sorted(_HERE.glob("*.py"))}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
