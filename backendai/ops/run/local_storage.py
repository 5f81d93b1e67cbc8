"""The storage host ``local`` of a one-machine installation, and the settings of its file server."""

from __future__ import annotations

import json
import os
from pathlib import Path

from django.conf import settings

from backendai.base.paths.storage_layout import MARKER, Marker
from backendai.base.wire.tickets import public_key_of
from backendai.domain.storage.models import StorageHost
from backendai.files.config import KEY_FILE
from backendai.files.process import owner_here, prepare_host

LOCAL_HOST = "local"


def write_key_file(data: Path) -> None:
    """Write the file with the deployment's name and public key for file servers. Nothing in it is secret."""
    told = {"deployment": settings.DEPLOYMENT, "public_key": public_key_of(settings.TICKET_KEY)}
    draft = data / f".{KEY_FILE}.{os.getpid()}"
    draft.write_text(json.dumps(told))
    draft.chmod(0o644)
    draft.replace(data / KEY_FILE)


def ensure_local_host(address: str) -> bool:
    """Create the row of the host ``local`` if it is missing; return whether it was created.

    An existing row gets the current address of the file server.
    """
    is_first = not StorageHost.objects.filter(is_default=True).exists()
    host, is_new = StorageHost.objects.get_or_create(
        name=LOCAL_HOST, defaults={"title": "This machine", "address": address, "is_default": is_first}
    )
    if host.address != address:
        StorageHost.objects.filter(pk=host.pk).update(address=address)
    return is_new


def prepare_local_folders(folders: Path) -> None:
    """Create the directory of the host ``local`` with its marker, if it is missing. Raises UserError."""
    folders.mkdir(parents=True, exist_ok=True)
    if not (folders / MARKER).exists():
        prepare_host(folders, Marker(settings.DEPLOYMENT, LOCAL_HOST, owner_here()))


def seed_storage(data: Path) -> None:
    """Create the storage host of this machine at the first start, and later update its address.

    A host that an administrator deleted stays deleted. Raises UserError.
    """
    is_first_time = not (data / KEY_FILE).exists()
    if is_first_time and settings.LOCAL_FOLDERS is not None:
        # Only now: an empty directory later on is a share that is not mounted.
        prepare_local_folders(settings.LOCAL_FOLDERS)
    if is_first_time or StorageHost.objects.filter(name=LOCAL_HOST).exists():
        ensure_local_host(settings.FILES_URL)
    write_key_file(data)
