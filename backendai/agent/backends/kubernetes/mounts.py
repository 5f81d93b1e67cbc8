"""Folders in pods: each is a subpath of its storage host's volume, and is checked in the running pod.

The cluster mounts them, so this machine needs no storage host. Parts of folders are not mounted: nodes follow links
inside a volume, and a link could lead into another person's folder. A node creates a missing directory as root,
readable only by root; the check in the running pod detects this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.abilities import Mounting
from backendai.agent.backends.base import SH, TOOLS, BackendError, KernelGone, StartFailed
from backendai.agent.backends.docker.mounts import writable_places
from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.names import pod_name
from backendai.agent.backends.kubernetes.api.streams import output_of
from backendai.agent.backends.kubernetes.pod import PodFolder
from backendai.agent.mounts.hosts import KERNEL_USER, MountRules, StorageHosts
from backendai.agent.settings.kubernetes import STORAGE, PoolStorage
from backendai.base.core.messages import Message
from backendai.base.paths.storage_layout import DATA, folder_path
from backendai.base.wire.messages import KernelSpec
from backendai.base.wire.mounts import HostReport, MountSpec

_KEPT_SECONDS = 300.0
_UNREADABLE = "unreadable "
_LOOK = f"""
{TOOLS}
cat /proc/self/mountinfo
for place in "$@"; do [ -r "$place" ] && [ -x "$place" ] || echo "{_UNREADABLE}$place"; done
""".strip()
_RULES = MountRules(uids=frozenset({KERNEL_USER}))


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    fault: str


class PodMounts:
    """``storage``: the hosts' volumes. ``hosts``: storage hosts that this machine also has; it checks their folders
    itself, so that missing ones are reported before the start."""

    def __init__(self, api: Api, storage: Mapping[str, PoolStorage], hosts: StorageHosts) -> None:
        self._api, self._storage, self.hosts = api, storage, hosts
        self._looks: dict[str, _Look] = {}
        self._left_out: dict[UUID, str] = {}

    def reports(self) -> list[HostReport]:
        """Return the hosts whose folders pods can mount. Reads claims from the API every five minutes."""
        seen = {report.name: report for report in self.hosts.reports()}
        found = []
        for name in sorted(self._storage):
            fault = self._fault_of(name) or (seen[name].fault if name in seen else "")
            free = seen[name].free_bytes if name in seen else None
            found.append(HostReport(name=name, fault=fault, sub_paths=False, free_bytes=free))
        return found

    def prepare(self, spec: KernelSpec) -> list[PodFolder]:
        """Return the pod's folders; leaves out failing automatic ones. Raises StartFailed for others."""
        found, missing = list[PodFolder](), list[str]()
        for mount in spec.mounts:
            try:
                found.append(self._folder(mount))
            except StartFailed as error:
                if not mount.is_automatic:
                    raise
                missing.append(f"{mount.folder_name} ({error.message.rstrip('.')})")
        if missing:
            self._left_out[spec.kernel_id] = f"Not mounted on this agent: {', '.join(missing)}."
        return found

    def left_out(self, kernel_id: UUID) -> str:
        """Return which automatic folders a kernel lacks, and why; empty: none known to this process."""
        return self._left_out.get(kernel_id, "")

    def drop(self, kernel_id: UUID) -> None:
        """Delete the stored message about a kernel."""
        self._left_out.pop(kernel_id, None)

    def check(self, spec: KernelSpec, folders: list[PodFolder]) -> None:
        """Raise StartFailed if a running pod lacks a folder or can write to a read-only one. Skips an ended pod. Raises
        BackendError if the pod does not answer."""
        places = [folder.target for folder in folders]
        if not places:
            return
        words = [SH, "-c", _LOOK, "look", *places]
        try:
            output, _ = output_of(self._api, pod_name(spec.kernel_id), words)
        except KernelGone:
            return
        lines = output.decode(errors="replace").splitlines()
        unreadable = {line.removeprefix(_UNREADABLE) for line in lines if line.startswith(_UNREADABLE)}
        writable = writable_places([line for line in lines if not line.startswith(_UNREADABLE)])
        for mount in (one for one in spec.mounts if one.target in places):
            if mount.target in unreadable:
                raise _failed("Folder {folder} is not on its storage host, or its files are not the user's.", mount)
            if writable.get(mount.target) is not (mount.rights == "edit"):
                raise _failed("Folder {folder} is not mounted as ordered.", mount, code="mount-refused")

    def _folder(self, mount: MountSpec) -> PodFolder:
        storage = self._storage.get(mount.host)
        if storage is None:
            text = "This pool does not know the storage host of folder {folder}: see {variable}."
            raise _failed(text, mount, code="storage-missing")
        if mount.sub_path or mount.linked_path:
            text = "Folder {folder} can only be mounted as a whole in a pool, and not if it is an existing path."
            raise _failed(text, mount, code="mount-refused")
        if mount.host in self.hosts.paths:
            one = {"folder": str(mount.folder_id), "name": mount.folder_name, "sub_path": "", "linked": "", "at": ""}
            self.hosts.children.run({**self.hosts.order(mount.host, "mount"), "mounts": [one]})
        inside = folder_path(Path(storage.folder), mount.folder_id) / DATA
        return PodFolder(mount.host, storage.source, str(inside), mount.target, mount.rights == "view")

    def _fault_of(self, name: str) -> str:
        claim = self._storage[name].claim
        if not claim:
            return ""
        look = self._looks.get(name)
        if look is None or time.monotonic() - look.at > _KEPT_SECONDS:
            look = self._looks[name] = _Look(time.monotonic(), self._fault_of_claim(claim))
        return look.fault

    def _fault_of_claim(self, claim: str) -> str:
        try:
            found = self._api.ask("GET", self._api.path("persistentvolumeclaims", claim))
        except ApiError as error:
            return f"The claim {claim} cannot be used: {error.words or error.status}."
        except BackendError:
            return ""  # a claim that cannot be read is not reported as missing
        if found["status"].get("phase") != "Bound":
            return f"The claim {claim} has no volume yet: {found['status'].get('phase', 'unknown')}."
        modes = found["spec"].get("accessModes") or []
        return "" if "ReadWriteMany" in modes else f"The claim {claim} is for one node only: it needs ReadWriteMany."


class MountingPods(Mounting):
    """A backend whose kernels are pods."""

    _folders: PodMounts

    def mount_rules(self) -> MountRules:
        return _RULES

    def storage_hosts(self) -> list[HostReport]:
        return self._folders.reports()

    def watch_storage(self, on_change: Callable[[], None]) -> None:
        self._folders.hosts.start(self.mount_rules, on_change)

    def cut_folder(self, kernel_id: UUID, folder_id: UUID) -> int:
        raise BackendError("A folder cannot be taken out of a running pod: its session has to end.")

    def left_out(self, kernel_id: UUID) -> str:
        return self._folders.left_out(kernel_id)


def _failed(text: str, mount: MountSpec, *, code: str = "folder-missing") -> StartFailed:
    gaps = {"folder": mount.folder_name} | ({"variable": STORAGE} if "{variable}" in text else {})
    return StartFailed(Message(text, **gaps), code=code)
