"""Stores homes of kernels as archives on storage hosts, and fills new homes from them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.abilities import HomeStoring
from backendai.agent.backends.base import Fetched, Progress, StartFailed
from backendai.agent.backends.shared.trees import bytes_under, files_under
from backendai.agent.mounts.archives import BROKEN, MISSING, TOO_LARGE
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.base.core.messages import Message
from backendai.base.core.slots import format_size
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import StoredHome, StoreResult, StoreWork
from backendai.base.wire.messages import KernelSpec

_TRIAL_SECONDS = 10.0


class StoredHomes(HomeStoring):
    """A backend that stores the homes of its kernels on this machine's storage hosts."""

    _mounts: KernelMounts
    _homes: Callable[[UUID], Path]

    def store_home(self, work: StoreWork, progress: Progress) -> StoreResult:
        home = self._homes(work.kernel_id)
        total, entries = bytes_under(home), files_under(home)

        def heed(done: int) -> None:
            text = Message("{done} of about {total} are stored.", done=format_size(done), total=format_size(total))
            progress(Fetched(min(done / total, 1.0) if total else None, text, done, total))

        order = _order(self._mounts.hosts, "store", work.home, home=str(home), most_bytes=work.most_bytes)
        answer = self._mounts.hosts.children.run_long(order, heed, seconds=work.timeout)
        return StoreResult(size_bytes=answer["size"], entries=entries)

    def drop_part(self, home: StoredHome) -> None:
        hosts = self._mounts.hosts
        hosts.children.run_long(_order(hosts, "drop", home), lambda _: None, seconds=_TRIAL_SECONDS)


def unpack_home(hosts: StorageHosts, spec: KernelSpec, home: Path, *, owner: int | None, limit: int = 0) -> None:
    """Unpack the spec's stored home, if it has one, into an empty directory. ``owner``: as in ``fill_home``. ``limit``:
    the most bytes; 0: none. Raises StartFailed."""
    if spec.home is None:
        return
    if owner is not None:
        os.chown(home, owner, owner)
    try:
        order = _order(hosts, "unpack", spec.home, home=str(home), uid=owner)
        hosts.children.run_long(order, lambda _: None, seconds=spec.create_timeout)
    except StartFailed as error:
        raise StartFailed(error.message, code=error.code if error.code in (TOO_LARGE, BROKEN) else MISSING) from error
    if limit and (size := bytes_under(home)) > limit:
        raise StartFailed(
            "The stored home holds {size}; a home here may hold {limit}.",
            size=format_size(size),
            limit=format_size(limit),
            code=TOO_LARGE,
        )


@cache
def lacks_homes() -> frozenset[Capability]:
    """Return the capability to store homes if this machine has no GNU tar."""
    try:
        told = subprocess.run(["tar", "--version"], capture_output=True, timeout=_TRIAL_SECONDS, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        told = b""
    return frozenset() if b"GNU tar" in told else frozenset({Capability.HOMES})


def _order(hosts: StorageHosts, do: str, place: StoredHome, **more: Any) -> dict[str, Any]:
    about = {"folder": str(place.folder_id), "name": place.folder_name, "file": place.file}
    return hosts.order(place.host, do) | about | more
