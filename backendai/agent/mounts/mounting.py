"""The common part of backends that mount folders, and unmount one in a running kernel."""

from __future__ import annotations

import abc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.abilities import HomeProviding, Mounting
from backendai.agent.backends.base import BackendError, with_cause
from backendai.agent.mounts.cutting import NOT_ALLOWED, NOT_APART, NOT_MOUNTED, NOT_SEEN
from backendai.agent.mounts.hosts import MountRules
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.base.core.messages import Message
from backendai.base.paths.installation import IMPORTED_FROM
from backendai.base.process.slowness import allowed
from backendai.base.wire.mounts import HostReport

_SECONDS = 10.0
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from backendai.agent.mounts.cutting import main; main()"
_WORDS = {
    NOT_APART: Message("The programs of this session are not shut in, so the folder cannot be unmounted for them."),
    NOT_ALLOWED: Message("This agent does not have the right to unmount folders of sessions that run."),
    NOT_SEEN: Message("This agent runs in a container and does not see the programs of sessions."),
    NOT_MOUNTED: Message("No program of this session sees the folder."),
}


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


def unmount_folder(pids: Sequence[int], folder_id: UUID) -> int:
    """Unmount a folder in the kernel of these processes; returns how many programs using it were killed. Raises
    BackendError."""
    order = json.dumps({"pids": list(pids), "folder": str(folder_id)})
    command = [sys.executable, "-I", "-S", "-c", _CODE, str(IMPORTED_FROM)]
    longest = allowed(_SECONDS)
    environ = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, input=order, capture_output=True, text=True, timeout=longest, env=environ, cwd="/", check=False
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        text = Message("The folder could not be unmounted within {seconds} s.", seconds=round(longest))
        raise BackendError(with_cause(text)) from error
    except ValueError as error:
        raise BackendError("The folder could not be unmounted: {output}", output=done.stderr.strip()[-300:]) from error
    if code := answer.get("code"):
        raise BackendError(_WORDS[code], code=f"folder-{code}")
    return int(answer["ended"])
