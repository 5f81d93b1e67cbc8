"""The mounts of kernels: prepared below ``<data>/mounts/<kernel>``, never below what is deleted with a kernel."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import StartFailed
from backendai.agent.mounts import calls
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.rules import MountRules
from backendai.wire.messages import KernelSpec
from backendai.wire.mounts import MountSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bind:
    """One folder of a kernel: from where, to where, and whether it can be written."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Binds:
    """All folders of a kernel. ``uid``: who owns their files; None: the kernel has none."""

    all: Sequence[Bind] = ()
    uid: int | None = None


NO_BINDS = Binds()


class KernelMounts:
    """Prepares the mounts of kernels and takes them away again. What is mounted is never deleted: a mount is detached,
    and an empty directory removed."""

    def __init__(self, data: Path, hosts: StorageHosts | None = None) -> None:
        self.root, self.hosts = data.absolute() / "mounts", hosts or StorageHosts()
        self._left_out: dict[UUID, str] = {}

    def prepare(self, spec: KernelSpec, rules: MountRules) -> Binds:
        """Return what the engine binds for the kernel; the same again for one that runs. Raises StartFailed, but not
        for want of automatic folders alone."""
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
        """Remember one more sentence about what the kernel starts without."""
        if text not in (known := self._left_out.get(kernel_id, "")):
            self._left_out[kernel_id] = f"{known} {text}".strip()

    def left_out(self, kernel_id: UUID) -> str:
        """Return what the kernel started without and why, automatic folders for one; empty: nothing that this process
        knows of."""
        return self._left_out.get(kernel_id, "")

    def remove(self, kernel_id: UUID) -> None:
        """Detach the kernel's mounts and remove their empty directories; gone already is success."""
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
        except OSError as error:  # the next sweep tries again
            logger.warning("the mounts of kernel %s are not all away: %s", kernel_id, error)

    def sweep(self, live: set[UUID]) -> None:
        """Take away what belongs to no kernel in ``live``: an agent that was killed has left it."""
        for folder in list(self.root.iterdir()) if self.root.is_dir() else ():
            try:
                kernel_id = UUID(folder.name)
            except ValueError:
                continue
            if kernel_id not in live:
                self.remove(kernel_id)

    def _prepare_all(self, spec: KernelSpec, wanted: Sequence[MountSpec], rules: MountRules) -> Binds:
        """Return the binds of all of these, or raise StartFailed with none of them left."""
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
        """Return the path of a linked folder, which the setting of this node must allow, to be read only."""
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
        """Ask again: the first look at the hosts may not be over yet."""
        return bool(self.hosts.children.run(self.hosts.order(host, "look"))["attaches"])
