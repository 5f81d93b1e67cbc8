"""The one writer of ``Folder.status``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import TRANSITIONS, FolderStatus


def transition(
    folder_ids: Iterable[UUID],
    to: FolderStatus,
    *,
    now: datetime,
    only_from: Collection[FolderStatus] | None = None,
    **columns: Any,
) -> set[UUID]:
    """Move the folders whose status allows it to ``to`` and return their ids; ``columns`` are written with it.

    Each that moved has a higher version, so older orders to its file server are refused. Locks the rows; two
    statements. Raises an IntegrityError when another folder of the owner has the name.
    """
    allowed = {source for source, targets in TRANSITIONS.items() if to in targets}
    sources = sorted(allowed if only_from is None else allowed & set(only_from))
    with transaction.atomic():
        rows = Folder.objects.filter(pk__in=list(folder_ids), status__in=sources).order_by("pk")
        moved = set(rows.select_for_update(of=("self",)).values_list("pk", flat=True))
        if moved:
            values = {"status_message": "", "version": F("version") + 1} | columns
            Folder.objects.filter(pk__in=moved).update(status=to, changed_at=now, **values)
    return moved
