"""Storage hosts and folders for tests, as rows and as directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from backendai.base.paths.storage_layout import DATA, Marker, folder_path, write_marker
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent
from backendai.domain.storage.models import Folder, HostOnAgent, StorageHost
from backendai.domain.storage.status import FolderStatus


def storage_host(name: str = "local", *agents: Agent, **offer: Any) -> StorageHost:
    """Return the storage host, which these agents offer with these features."""
    host, _ = StorageHost.objects.get_or_create(name=name, defaults={"address": "http://127.0.0.1:1"})
    for agent in agents:
        HostOnAgent.objects.update_or_create(host=host, agent=agent, defaults=offer)
    return host


def ready_folder(owner: User | None, name: str = "data", **over: Any) -> Folder:
    """Return a READY folder of this person."""
    values = {"host": over.pop("host", None) or storage_host(), "status": FolderStatus.READY}
    return Folder.objects.create(user=owner, name=name, **(values | over))


def folder_on_disk(root: Path, folder_id: Any, *, uid: int | None = None) -> Path:
    """Return the data directory of a new folder on disk, which belongs to the uid that kernels have."""
    data = folder_path(root, folder_id) / DATA
    data.mkdir(parents=True)
    if uid is not None and os.geteuid() == 0:
        os.chown(data, uid, uid)
    return data


def root_on_disk(root: Path, *, deployment: str, host: str = "local", uid: int | None = None) -> Path:
    """Return the root of a storage host on disk, with its marker."""
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o711)
    uid = uid if uid is not None else (1000 if os.geteuid() == 0 else os.geteuid())
    write_marker(root, Marker(deployment, host, uid))
    return root
