"""The age of the database, by which agents notice that it was restored, and portals that there are two of them."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F, Value
from django.db.models.functions import Least

from backendai.cluster.models import DatabaseEpoch
from backendai.wire.messages import Epoch

STRANGERS_ARE_REAL = 2  # passes in a row; a restored database finds one strange mark
_MOST_COUNTED = 1000


def read_epoch() -> Epoch | None:
    """Return the epoch that agents are told; one query."""
    found = DatabaseEpoch.objects.values_list("lineage", "tick").first()
    return Epoch(lineage=found[0].hex, tick=found[1]) if found else None


def advance_epoch(now: datetime) -> int:
    """Let the database be one tick older; a rule of the repair pass. Returns 0: nothing was wrong."""
    if not DatabaseEpoch.objects.update(tick=F("tick") + 1):
        DatabaseEpoch.objects.create(tick=1)
    return 0


def read_mark() -> str:
    """Return the mark that this portal wrote into the broker last, empty when there is none; one query."""
    return DatabaseEpoch.objects.values_list("mark", flat=True).first() or ""


def note_mark(mark: str, *, is_strange: bool) -> int:
    """Keep the mark that is in the broker now. Returns how many passes in a row found a strange one there."""
    strangers = Least(F("strangers") + 1, Value(_MOST_COUNTED)) if is_strange else Value(0)
    DatabaseEpoch.objects.update(mark=mark, strangers=strangers)
    return DatabaseEpoch.objects.values_list("strangers", flat=True).first() or 0


def has_other_portal() -> bool:
    """Return whether another portal with this deployment's name was at the broker in the last passes; one query."""
    return DatabaseEpoch.objects.filter(strangers__gte=STRANGERS_ARE_REAL).exists()
