"""Mounts folders for kernels below ``<data>/mounts/<kernel>``, apart from files that are deleted with a kernel."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.shared.trees import ids_in
from backendai.agent.mounts import calls
from backendai.agent.mounts.hosts import MountRules, StorageHosts
from backendai.base.wire.messages import KernelSpec
from backendai.base.wire.mounts import MountSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bind:
    """One folder of a kernel: host path, path in the kernel, and whether it is read-only."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Binds:
    """All folders of a kernel. ``uid``: the owner of their files; None: the kernel has no folders."""

    all: Sequence[Bind] = ()
    uid: int | None = None


NO_BINDS = Binds()


class KernelMounts:
    """Prepares and removes the mounts of kernels. Removal detaches mounts and deletes only empty directories, never
    files."""

    def __init__(self, data: Path, hosts: StorageHosts | None = None) -> None:
        self.root, self.hosts = data.absolute() / "mounts", hosts or StorageHosts()
        self._left_out: dict[UUID, str] = {}

    def prepare(self, spec: KernelSpec, rules: MountRules) -> Binds:
        """Return the kernel's bind mounts. Repeatable for a running kernel. Raises StartFailed, except for automatic
        folders, which are left out."""
        try:
            return self._prepare_all(spec, spec.mounts, rules)
        except StartFailed as error:
            required = [mount for mount in spec.mounts if not mount.is_automatic]
            if len(required) == len(spec.mounts):
                raise
            fault = error.message
        binds = self._prepare_all(spec, required, rules)
        names = ", ".join(mount.folder_name for mount in spec.mounts if mount.is_automatic)
        self._left_out[spec.kernel_id] = text = f"Not mounted on this agent: {names}. {fault}"
        logger.warning("kernel %s: %s", spec.kernel_id, text)
        return binds

    def also_left_out(self, kernel_id: UUID, text: str) -> None:
        """Save another message about a folder or feature that the kernel lacks."""
        if text not in (known := self._left_out.get(kernel_id, "")):
            self._left_out[kernel_id] = f"{known} {text}".strip()

    def left_out(self, kernel_id: UUID) -> str:
        """Return which folders the kernel lacks, such as automatic ones, and why; empty: none known to this process."""
        return self._left_out.get(kernel_id, "")

    def remove(self, kernel_id: UUID) -> None:
        """Detach the kernel's mounts and remove their empty directories. Does nothing if they are gone."""
        self._left_out.pop(kernel_id, None)
        folder = self.root / str(kernel_id)
        try:
            places = list(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            for place in places:
                calls.detach(str(place))
                place.rmdir()
            folder.rmdir()
        except OSError as error:  # the next sweep retries
            logger.warning("the mounts of kernel %s are not all away: %s", kernel_id, error)

    def sweep(self, live: set[UUID]) -> None:
        """Remove mounts of kernels that are not in ``live``, such as those left by a killed agent."""
        for kernel_id in ids_in(self.root) - live:
            self.remove(kernel_id)

    def _prepare_all(self, spec: KernelSpec, wanted: Sequence[MountSpec], rules: MountRules) -> Binds:
        """Return the binds of all these mounts. Raises StartFailed after removing partial ones."""
        if not wanted:
            return NO_BINDS
        if rules.fault:
            raise StartFailed(rules.fault, code="mount-refused")
        self.remove(spec.kernel_id)
        try:
            return self._prepare(spec, wanted, rules)
        except StartFailed:
            self.remove(spec.kernel_id)
            raise

    def _prepare(self, spec: KernelSpec, wanted: Sequence[MountSpec], rules: MountRules) -> Binds:
        found: dict[int, Bind] = {}
        uids: set[int] = set()
        for host in sorted({mount.host for mount in wanted}):
            order = self.hosts.order(host, "mount")
            numbered = [(number, mount) for number, mount in enumerate(wanted) if mount.host == host]
            attaches = rules.attaches and (self.hosts.attaches(host) or self._attaches_now(host))
            order["mounts"] = [self._one(spec, number, mount, rules, attaches) for number, mount in numbered]
            answer = self.hosts.children.run(order)
            uids.add(answer["uid"])
            for (number, mount), source in zip(numbered, answer["sources"], strict=True):
                found[number] = Bind(source, mount.target, mount.rights == "view")
        if len(uids) > 1 or not uids <= rules.uids:
            owners = " and ".join(map(str, sorted(uids)))
            raise StartFailed(
                "The files of these folders belong to user {owners}, as which no kernel of this agent can run.",
                owners=owners,
                code="mount-refused",
            )
        return Binds([found[number] for number in sorted(found)], uids.pop())

    def _one(
        self, spec: KernelSpec, number: int, mount: MountSpec, rules: MountRules, attaches: bool
    ) -> dict[str, Any]:
        if mount.rights == "view" and not rules.read_only:
            raise StartFailed(
                "Folder {folder} cannot be mounted read-only here: this agent has no bubblewrap.",
                folder=mount.folder_name,
                code="mount-refused",
            )
        if mount.sub_path and not attaches:
            raise StartFailed(
                "A part of folder {folder} cannot be mounted here: only an agent of root can do that.",
                folder=mount.folder_name,
                code="mount-refused",
            )
        return {
            "folder": str(mount.folder_id),
            "name": mount.folder_name,
            "sub_path": mount.sub_path,
            "linked": self._linked(mount),
            "read_only": mount.rights == "view",
            "at": str(self.root / str(spec.kernel_id) / str(number)) if attaches else "",
        }

    def _linked(self, mount: MountSpec) -> str:
        """Return the path of a linked folder, or "". Raises StartFailed if the settings do not allow it or it is not
        read-only."""
        if not mount.linked_path:
            return ""
        path = Path(mount.linked_path)
        allowed = path.is_absolute() and ".." not in path.parts
        if not allowed or mount.rights != "view" or not any(path.is_relative_to(top) for top in self.hosts.linked):
            raise StartFailed(
                "This agent does not offer {path}: see BACKENDAI_FILES_LINKED_PATHS.",
                path=mount.linked_path,
                code="mount-refused",
            )
        return str(path)

    def _attaches_now(self, host: str) -> bool:
        """Check the host now, as the first check may not have finished."""
        return bool(self.hosts.children.run(self.hosts.order(host, "look"))["attaches"])
