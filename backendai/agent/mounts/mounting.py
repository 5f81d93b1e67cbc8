"""The common part of backends that mount folders."""

from __future__ import annotations

import abc
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.abilities import HomeProviding, Mounting
from backendai.agent.mounts.cuts import unmount_folder
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.agent.mounts.rules import MountRules
from backendai.base.wire.mounts import HostReport


class MountingBackend(Mounting, HomeProviding):
    """A backend whose kernels mount folders and have their home folders on this machine."""

    _mounts: KernelMounts
    _rules: Callable[[], MountRules]
    _homes: Callable[[UUID], Path]

    def mount_rules(self) -> MountRules:
        return self._rules()

    def home_folder(self, kernel_id: UUID) -> Path | None:
        return self._homes(kernel_id)

    def cut_folder(self, kernel_id: UUID, folder_id: UUID) -> int:
        return unmount_folder(self._processes(kernel_id), folder_id)

    @abc.abstractmethod
    def _processes(self, kernel_id: UUID) -> list[int]:
        """Return processes of a running kernel, at least one in each of its mount namespaces. Raises KernelGone."""

    def left_out(self, kernel_id: UUID) -> str:
        return self._mounts.left_out(kernel_id)

    def storage_hosts(self) -> list[HostReport]:
        return self._mounts.hosts.reports()

    def watch_storage(self, on_change: Callable[[], None]) -> None:
        self._mounts.hosts.start(self.mount_rules, on_change)
