"""Rejects launches when the disk of the SQLite database is nearly full. Other writes, above all the end of sessions,
need the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

from django.conf import settings
from django.db import connection

from backendai.base.core.errors import StorageFull
from backendai.base.core.slots import format_size


def check_disk() -> None:
    """Raise StorageFull if less than the reserve is free. On PostgreSQL nothing is checked."""
    if connection.vendor != "sqlite" or not settings.DISK_RESERVE:
        return
    free = shutil.disk_usage(Path(connection.settings_dict["NAME"]).parent).free
    if free < settings.DISK_RESERVE:
        raise StorageFull(
            "The portal's disk has {free_2} left, and launches need {DISK_RESERVE}. Its "
            "administrators must free space.",
            free_2=format_size(free),
            DISK_RESERVE=format_size(settings.DISK_RESERVE),
            free=free,
            reserve=settings.DISK_RESERVE,
        )
