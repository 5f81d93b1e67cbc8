"""Optional abilities of backends, beyond starting and ending kernels.

Callers check with ``isinstance`` whether a backend has an ability. Most are reported to the portal as a capability.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import NOBODY, Backend, KernelReading, Progress, SavedImage, Terminal
from backendai.agent.mounts.hosts import MountRules
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import StoredHome, StoreResult, StoreWork
from backendai.base.wire.images import CommitSpec, RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting
from backendai.base.wire.mounts import HostReport
from backendai.base.wire.usage import HomeLook


class Imaging(Backend):
    """A backend whose kernels start from images."""

    @abc.abstractmethod
    def images(self) -> list[ImageSighting]:
        """Return the images that can start without a pull."""

    @abc.abstractmethod
    def has_image(self, reference: str) -> bool:
        """Return whether ``start`` would find the image now; cheap."""

    @abc.abstractmethod
    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        """Pull the image with this account at its registry; calls ``progress``, which can raise to give up, at least
        once a second. Raises ImageNotFound if the registry lacks it, and
        BackendError without an answer, after 120 s of silence, or for rejected credentials."""


class Committing(Backend):
    """A backend that saves kernels as images."""

    @abc.abstractmethod
    def commit(self, spec: CommitSpec) -> SavedImage:
        """Create an image from a kernel, or find the one created before. The image contains none of the kernel's
        variables, and a failure leaves no image. Raises KernelGone, CommitFailed."""

    @abc.abstractmethod
    def push_image(self, spec: CommitSpec, *, progress: Progress) -> str:
        """Push a saved image to its registry; returns its manifest's digest. Raises CommitFailed."""

    @abc.abstractmethod
    def drop_image(self, reference: str) -> bool:
        """Delete a saved image, but no other one; returns whether it is gone."""


class Streaming(Backend):
    """A backend with terminals, and logs as they grow."""

    @abc.abstractmethod
    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        """Attach to the shell session ``name`` (in tmux if the image has it); creates it if needed.

        Raises KernelGone, BackendError.
        """

    @abc.abstractmethod
    def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """Yield the main process's output from ``tail`` lines before its end (None: all); ``follow`` continues with new
        output."""


class Measuring(Backend):
    """A backend that measures its kernels."""

    @abc.abstractmethod
    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        """Return the measurements of these running kernels, without unreadable ones. For one thread. Raises
        BackendError."""


class Mounting(Backend):
    """A backend whose kernels can mount folders."""

    @abc.abstractmethod
    def mount_rules(self) -> MountRules:
        """Return the backend's rules about mounts."""

    @abc.abstractmethod
    def storage_hosts(self) -> list[HostReport]:
        """Return the storage hosts whose folders kernels can mount, as last checked."""

    @abc.abstractmethod
    def watch_storage(self, on_change: Callable[[], None]) -> None:
        """Check the storage hosts until ``close``; calls ``on_change`` when anything but their free space has
        changed."""

    @abc.abstractmethod
    def cut_folder(self, kernel_id: UUID, folder_id: UUID) -> int:
        """Unmount a folder in a running kernel, and kill the programs that use it; returns their number. Raises
        KernelGone, and BackendError where this is impossible."""


class HomeProviding(Backend):
    """A backend whose kernels have home folders that the agent can read."""

    def home(self, kernel_id: UUID) -> HomeLook | None:
        """Return the use of the kernel's home folder, measured for at most 2 s; None if it cannot be read. Raises
        KernelGone."""
        return None

    @abc.abstractmethod
    def home_folder(self, kernel_id: UUID) -> Path | None:
        """Return the path of the kernel's home folder on this machine; None if it has none there."""


class HomeStoring(HomeProviding):
    """A backend that stores the home of a kernel as an archive in a folder, and fills homes of new kernels from it."""

    @abc.abstractmethod
    def freeze(self, kernel_id: UUID) -> None:
        """Let the kernel's programs stand still until ``thaw`` or the kernel's end. Raises KernelGone, BackendError."""

    @abc.abstractmethod
    def thaw(self, kernel_id: UUID) -> None:
        """Let the programs of a frozen kernel go on; does nothing to others. Raises BackendError."""

    @abc.abstractmethod
    def store_home(self, work: StoreWork, progress: Progress) -> StoreResult:
        """Write the archive of a frozen kernel's home; calls ``progress``, which can raise to give up, about once a
        second. The archive gets its name when it is complete. Raises BackendError."""

    @abc.abstractmethod
    def drop_part(self, home: StoredHome) -> None:
        """Delete what an interrupted ``store_home`` left. Raises BackendError."""


_REPORTED: dict[Capability, type[Any]] = {
    Capability.COMMIT: Committing,
    Capability.TERMINAL: Streaming,
    Capability.READINGS: Measuring,
    Capability.FOLDERS: Mounting,
    Capability.HOMES: HomeStoring,
}


def declared_by(kind: type[Backend]) -> frozenset[Capability]:
    """Return the capabilities of a backend class: its declared ones, and those of its abilities."""
    return kind.capabilities | {name for name, ability in _REPORTED.items() if issubclass(kind, ability)}


def capabilities_with(backend: Backend) -> frozenset[Capability]:
    """Return the capabilities that the portal receives for this backend."""
    return (declared_by(type(backend)) | backend.capabilities) - backend.lacks
