"""The epoch of the database. With it agents notice a restored backup, and portals notice a second portal."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F, Value
from django.db.models.functions import Least

from backendai.base.wire.messages import Epoch
from backendai.domain.cluster.models import DatabaseEpoch

STRANGERS_ARE_REAL = 2  # passes in a row; a restored database finds one strange mark
_MOST_COUNTED = 1000


def read_epoch() -> Epoch | None:
    """Return the epoch that agents receive, or None; one query."""
    found = DatabaseEpoch.objects.values_list("lineage", "tick").first()
    return Epoch(lineage=found[0].hex, tick=found[1]) if found else None


def advance_epoch(now: datetime) -> int:
    """Increase the tick of the database by one; a rule of the repair pass. Returns 0, as this repairs nothing."""
    if not DatabaseEpoch.objects.update(tick=F("tick") + 1):
        DatabaseEpoch.objects.create(tick=1)
    return 0


def read_mark() -> str:
    """Return the mark that this portal last wrote to the broker, or an empty text; one query."""
    return DatabaseEpoch.objects.values_list("mark", flat=True).first() or ""


def note_mark(mark: str, *, is_strange: bool) -> int:
    """Save the current mark in the broker. Returns how many passes in a row found a foreign one."""
    strangers = Least(F("strangers") + 1, Value(_MOST_COUNTED)) if is_strange else Value(0)
    DatabaseEpoch.objects.update(mark=mark, strangers=strangers)
    return DatabaseEpoch.objects.values_list("strangers", flat=True).first() or 0


def has_other_portal() -> bool:
    """Return whether the last passes found another portal with this deployment's name at the broker; one query."""
    return DatabaseEpoch.objects.filter(strangers__gte=STRANGERS_ARE_REAL).exists()
