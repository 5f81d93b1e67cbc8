"""Creates the initial data of an installation: administrator, project, resource group, presets and images."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from django.db import transaction

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person, get_or_create_project
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.services import seed_images
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import JoinToken, ResourceGroup
from backendai.ops.run.local_storage import seed_storage

LOCAL_PREFIX = "local"
# Without these, one large session that waits keeps every small one waiting behind it, however much is free. Backfill
# keeps what the first in line asks for, so a session without a known start also gives way after 10 tries, for a day.
_LETS_OTHERS_PASS = {"backfill": True, "retries_to_skip": 10}
_PRESETS = [("small", 1, "1g"), ("medium", 2, "4g"), ("large", 4, "8g")]


def seed(data: Path, *, admin_email: str, admin_password: str = "") -> None:
    """Create missing initial data; objects that an administrator changed or deleted stay so.

    Writes ``first-admin.json`` with a new administrator, ``local-join-token`` for the agents of this machine, and
    ``file-server.json``. Also creates the folders' directory of this machine.
    """
    with transaction.atomic():
        project = get_or_create_project("default", "default")
        group, fresh = ResourceGroup.objects.get_or_create(
            name="default", defaults={"is_default": True, **_LETS_OTHERS_PASS}
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
    JoinToken.objects.filter(name_prefix=LOCAL_PREFIX).delete()
    return create_join_token(group, name_prefix=LOCAL_PREFIX, reusable=True)
