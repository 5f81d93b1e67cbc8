"""Creates the initial data of an installation: administrator, project, resource group, presets, images, storage."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from django.conf import settings
from django.db import transaction

from backendai.base.paths.storage_layout import MARKER, Marker
from backendai.base.wire.tickets import public_key_of
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person, get_or_create_project
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.services import seed_images
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import JoinToken, ResourceGroup
from backendai.domain.storage.models import StorageHost
from backendai.files.config import KEY_FILE
from backendai.files.process import owner_here, prepare_host

LOCAL = "local"  # the storage host of this machine, and the beginning of its agents' names
# Without these, one large session that waits keeps every small one waiting behind it, however much is free. Backfill
# keeps what the first in line asks for, so a session without a known start also gives way after 10 tries, for a day.
_LETS_OTHERS_PASS = {"backfill": True, "retries_to_skip": 10}
_PRESETS = [("small", 1, "1g"), ("medium", 2, "4g"), ("large", 4, "8g")]


def seed(data: Path, *, admin_email: str, admin_password: str = "", group_name: str = "default") -> None:
    """Create missing initial data; objects that an administrator changed or deleted stay so.

    Writes ``first-admin.json`` with a new administrator, ``local-join-token`` for the agents of this machine, and
    ``file-server.json``. Also creates the folders' directory of this machine.
    """
    with transaction.atomic():
        project = get_or_create_project("default", "default")
        group, fresh = ResourceGroup.objects.get_or_create(
            name=group_name, defaults={"is_default": True, **_LETS_OTHERS_PASS}
        )
        if fresh:
            for rank, (name, cpu, memory) in enumerate(_PRESETS):
                ResourcePreset.objects.create(name=name, rank=rank, slots={"cpu": str(cpu), "mem": memory})
        seed_images()
        password = "" if User.objects.exists() else admin_password or secrets.token_urlsafe(12)
        if password:
            create_person(admin_email, password=password, project=project, role=User.Role.SUPERADMIN)
        token_path = data / "local-join-token"
        token = "" if token_path.exists() else _local_token(group)
    if password:
        write_private(data / "first-admin.json", json.dumps({"email": admin_email, "password": password}))
    if token:
        write_private(token_path, token)
    seed_storage(data)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _local_token(group: ResourceGroup) -> str:
    JoinToken.objects.filter(name_prefix=LOCAL).delete()
    return create_join_token(group, name_prefix=LOCAL, reusable=True)


def seed_storage(data: Path) -> None:
    """Create the storage host of this machine at the first start, and later update its address.

    A host that an administrator deleted stays deleted. Raises UserError.
    """
    is_first_time = not (data / KEY_FILE).exists()
    if is_first_time and settings.LOCAL_FOLDERS is not None:
        # Only now: an empty directory later on is a share that is not mounted.
        prepare_local_folders(settings.LOCAL_FOLDERS)
    if is_first_time or StorageHost.objects.filter(name=LOCAL).exists():
        ensure_local_host(settings.FILES_URL)
    write_key_file(data)


def write_key_file(data: Path) -> None:
    """Write the file with the deployment's name and public key for file servers. Nothing in it is secret."""
    key = {"deployment": settings.DEPLOYMENT, "public_key": public_key_of(settings.TICKET_KEY)}
    draft = data / f".{KEY_FILE}.{os.getpid()}"
    draft.write_text(json.dumps(key))
    draft.chmod(0o644)
    draft.replace(data / KEY_FILE)


def ensure_local_host(address: str) -> bool:
    """Create the row of the host ``local`` if it is missing; return whether it was created.

    An existing row gets the current address of the file server.
    """
    is_first = not StorageHost.objects.filter(is_default=True).exists()
    host, is_new = StorageHost.objects.get_or_create(
        name=LOCAL, defaults={"title": "This machine", "address": address, "is_default": is_first}
    )
    if host.address != address:
        StorageHost.objects.filter(pk=host.pk).update(address=address)
    return is_new


def prepare_local_folders(folders: Path) -> None:
    """Create the directory of the host ``local`` with its marker, if it is missing. Raises UserError."""
    folders.mkdir(parents=True, exist_ok=True)
    if not (folders / MARKER).exists():
        prepare_host(folders, Marker(settings.DEPLOYMENT, LOCAL, owner_here()))
