"""What some backends can do beside starting and ending kernels. Who asks looks first whether a backend has the ability;
the portal is told of most of them by a capability."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import NOBODY, Backend, Made, Progress, Terminal
from backendai.agent.mounts.rules import MountRules
from backendai.agent.readings import Reading
from backendai.wire.capabilities import Capability
from backendai.wire.commits import CommitSpec
from backendai.wire.home import HomeLook
from backendai.wire.messages import ImageSighting, KernelSighting
from backendai.wire.mounts import HostReport
from backendai.wire.pulls import RegistryAccess


class Imaging(Backend):
    """Kernels start from images, of which the backend has some."""

    @abc.abstractmethod
    def images(self) -> list[ImageSighting]:
        """Return the images that can be started without a pull."""

    @abc.abstractmethod
    def has_image(self, reference: str) -> bool:
        """Return whether ``start`` would find the image now; cheap."""

    @abc.abstractmethod
    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        """Fetch the image with this account at its registry. Raises ImageNotFound (registry says no), BackendError (no
        answer, 120 s of silence, the account is not let in)."""


class Committing(Backend):
    """Images can be made of kernels."""

    @abc.abstractmethod
    def commit(self, spec: CommitSpec) -> Made:
        """Return the image that is made of a kernel; one that was made of it before is found. Nothing of the kernel's
        variables is in it, and of a failure nothing is left. Raises KernelGone, CommitFailed."""

    @abc.abstractmethod
    def push_image(self, spec: CommitSpec, *, progress: Progress) -> str:
        """Bring an image that was made here to its registry; returns its manifest's digest. Raises CommitFailed."""

    @abc.abstractmethod
    def drop_image(self, reference: str) -> bool:
        """Remove an image that was made of a kernel, and no other one; returns whether it is gone."""


class Streaming(Backend):
    """People reach the shell of a kernel and see its output as it comes."""

    @abc.abstractmethod
    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        """Attach to the shell session ``name`` (tmux when the image has it), making it if needed.

        Raises KernelGone, BackendError.
        """

    @abc.abstractmethod
    def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """Yield the output of the main process from ``tail`` lines before the end (None: all), and on as it comes."""


class Measuring(Backend):
    """What kernels use is measured."""

    @abc.abstractmethod
    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, Reading]:
        """Return what these running kernels have used so far; those of which nothing can be read are left out. Called
        by one thread. Raises BackendError."""


class Mounting(Backend):
    """Kernels can mount folders."""

    @abc.abstractmethod
    def mount_rules(self) -> MountRules:
        """Return what this backend can do with folders."""

    @abc.abstractmethod
    def storage_hosts(self) -> list[HostReport]:
        """Return of which storage hosts kernels can mount folders, as it was seen last."""

    @abc.abstractmethod
    def watch_storage(self, on_change: Callable[[], None]) -> None:
        """Look at the storage hosts from now on until ``close``; call this when something else than free space has
        changed."""

    @abc.abstractmethod
    def cut_folder(self, kernel_id: UUID, folder_id: UUID) -> int:
        """Take a folder out of a running kernel, and kill the programs that use it; returns how many. Raises
        KernelGone, and BackendError where that is not possible."""


class Homely(Backend):
    """Kernels have a home folder that can be looked into."""

    def home(self, kernel_id: UUID) -> HomeLook | None:
        """Return what is in the kernel's home folder, after a look of at most two seconds; None where it cannot be
        seen. Raises KernelGone."""
        return None

    @abc.abstractmethod
    def home_folder(self, kernel_id: UUID) -> Path | None:
        """Return where the kernel's home folder lies on this machine; None where it has none that can be read."""


_REPORTED: dict[Capability, type[Any]] = {
    Capability.COMMIT: Committing,
    Capability.TERMINAL: Streaming,
    Capability.READINGS: Measuring,
    Capability.FOLDERS: Mounting,
}


def declared_by(kind: type[Backend]) -> frozenset[Capability]:
    """Return what backends of this class usually do: what the class declares, and its abilities."""
    return kind.capabilities | {name for name, ability in _REPORTED.items() if issubclass(kind, ability)}


def capabilities_with(backend: Backend) -> frozenset[Capability]:
    """Return what the portal is told of this very backend."""
    return (declared_by(type(backend)) | backend.capabilities) - backend.lacks
