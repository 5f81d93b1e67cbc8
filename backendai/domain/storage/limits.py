"""Checks the limits of an owner's folders: their number and total size. One lock for each owner."""

from __future__ import annotations

import zlib
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, Count, Q, Sum, Value
from django.db.models.functions import Coalesce

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.core.slots import format_size
from backendai.base.db import advisory_locks
from backendai.domain.accounts.models import Domain, Project, ResourcePolicy, User
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import FolderStatus, Usage

COUNTED = (FolderStatus.CREATING, FolderStatus.READY, FolderStatus.ERROR)  # what is in the trash is checked at restore
_LOCKS = 1024
_PATIENCE = "8s"

Owner = User | Project


def owner_of(folder: Folder) -> Owner:
    """Return the user or project that owns the folder."""
    owner = folder.user or folder.project
    assert owner is not None  # a constraint of the table
    return owner


def limits_of(owner: Owner) -> tuple[int | None, int | None]:
    """Return the owner's largest number of folders and largest sum of limits; None: unlimited. The stricter of the
    owner's and the domain's policy holds. Two queries."""
    rows: list[tuple[int | None, int | None]] = []
    own: Any = (User if isinstance(owner, User) else Project).objects.filter(pk=owner.pk)
    domain: Any = Domain.objects.filter(pk__in=[owner.domain_id] if owner.domain_id is not None else [])
    for holders in (own, domain):
        rows += ResourcePolicy.objects.filter(pk__in=holders.values("policy")).values_list(
            "max_folders", "max_folder_bytes"
        )
    numbers = [number for number, _ in rows if number is not None]
    sizes = [size for _, size in rows if size is not None]
    return min(numbers, default=None), min(sizes, default=None)


def held_by(owner: Owner, *, without: Folder | None = None) -> tuple[int, int]:
    """Return the number of folders that count for this owner, and the sum of their limits. A folder without a limit
    counts its size, and one with the homes of a stopped session only that."""
    rows = Folder.objects.filter(_owned(owner), status__in=COUNTED, linked_path="")
    if without is not None:
        rows = rows.exclude(pk=without.pk)
    size = Coalesce("limit_bytes", "used_bytes", Value(0), output_field=BigIntegerField())
    held = rows.order_by().aggregate(number=Count("pk", filter=~Q(usage=Usage.HOME)), total=Sum(size))
    return held["number"], held["total"] or 0


def room_left(owner: Owner, *, without: Folder | None = None) -> int | None:
    """Return how many bytes the owner's policies leave; None: unlimited. Three queries."""
    most_bytes = limits_of(owner)[1]
    return None if most_bytes is None else max(0, most_bytes - held_by(owner, without=without)[1])


def check_room(owner: Owner, limit_bytes: int | None, *, without: Folder | None = None) -> None:
    """Raise Conflict if a folder with this limit would exceed a policy. Locks the owner until the end of the caller's
    transaction. ``without``: a folder that is left out of the count."""
    lock_owner(owner)
    most, most_bytes = limits_of(owner)
    if most is None and most_bytes is None:
        return
    number, total = held_by(owner, without=without)
    if most is not None and number + 1 > most:
        text = Message(
            "{owner} has {number} folders, and at most {most} are allowed. Delete one, or ask for a larger limit.",
            owner=owner,
            number=number,
            most=most,
        )
        raise Conflict(text, code="too-many-folders", number=number, limit=most)
    if most_bytes is None:
        return
    left = max(0, most_bytes - total)
    if limit_bytes is None:
        text = Message(
            "Give the folder a limit of at most {room}: policies limit the folders of {owner}.",
            room=format_size(left),
            owner=owner,
        )
        raise Conflict(text, field="limit_bytes", code="limit-needed", limit=most_bytes, left=left)
    if limit_bytes > left:
        text = Message(
            "The folders of {owner} may have {most_bytes} together, of which {room} are left; "
            "{limit_bytes} are asked for.",
            owner=owner,
            most_bytes=format_size(most_bytes),
            room=format_size(left),
            limit_bytes=format_size(limit_bytes),
        )
        raise Conflict(text, field="limit_bytes", code="folder-bytes", limit=most_bytes, left=left)


def lock_owner(owner: Owner) -> None:
    """Lock the owner's folders until the transaction ends (SQLite: the write transaction itself does)."""
    if connection.vendor != "postgresql":
        return
    kind = "user" if isinstance(owner, User) else "project"
    number = zlib.crc32(f"{kind}:{owner.pk}".encode()) % _LOCKS
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [advisory_locks.FOLDERS, number])


def _owned(owner: Owner) -> Q:
    return Q(user=owner) if isinstance(owner, User) else Q(project=owner)
