"""Deletes old logs and history of ended sessions, and the oldest logs of owners with too many bytes.

Each function deletes a bounded number of rows in a few statements, each its own transaction; the next call continues.
Sessions, owners, times and amounts are kept, and so are all rows of live sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Sum, Window

from backendai.domain.compute.models import ComputeSession, EarlierLog, KernelLog, SchedulingRecord
from backendai.domain.compute.status import TERMINAL

_OWNER = "kernel__session__owner"
_MOST_LOGS, _LOGS_AT_ONCE = 4_000, 500  # a log has up to 4 MiB
_MOST_OWNERS = 50
_MOST_SESSIONS, _MOST_RECORDS, _RECORDS_AT_ONCE = 1_000, 20_000, 5_000


def delete_old_logs(now: datetime) -> int:
    """Delete logs of ended sessions that were saved more than ``KEEP_LOGS`` ago (0: nothing is deleted); returns how
    many."""
    if not settings.KEEP_LOGS:
        return 0
    limit = now - settings.KEEP_LOGS
    old = _logs_of_ended().filter(saved_at__lt=limit).order_by("saved_at")
    deleted = _delete(KernelLog, list(old.values_list("pk", flat=True)[:_MOST_LOGS]), _LOGS_AT_ONCE)
    earlier = EarlierLog.objects.filter(saved_at__lt=limit, kernel__session__status__in=sorted(TERMINAL))
    keys = list(earlier.order_by("saved_at").values_list("pk", flat=True)[:_MOST_LOGS])
    return deleted + _delete(EarlierLog, keys, _LOGS_AT_ONCE)


def delete_logs_beyond_share(now: datetime) -> int:
    """Delete the oldest logs of each owner above ``LOG_BYTES_PER_OWNER`` (0: no limit); returns how many. Only logs of
    ended sessions; one call deletes at most ``_MOST_LOGS`` of each kind.

    The first query sums the bytes of each owner. For owners above the limit, the second one computes running sums from
    the newest log on.
    """
    most = settings.LOG_BYTES_PER_OWNER
    if not most:
        return 0
    sums = _logs_of_ended().order_by().values(_OWNER).annotate(total=Sum("size"))
    owners = list(sums.filter(total__gt=most).order_by("-total").values_list(_OWNER, flat=True)[:_MOST_OWNERS])
    if not owners:
        return 0
    earlier = EarlierLog.objects.filter(**{f"{_OWNER}__in": owners, "kernel__session__status__in": sorted(TERMINAL)})
    first = list(earlier.order_by("saved_at").values_list("pk", flat=True)[:_MOST_LOGS])
    deleted = _delete(EarlierLog, first, _LOGS_AT_ONCE)  # outputs of earlier starts are deleted before last outputs
    newest_first = [F("saved_at").desc(), F("kernel_id").desc()]
    newer = Window(Sum("size"), partition_by=[F(_OWNER)], order_by=newest_first)
    beyond = _logs_of_ended().filter(**{f"{_OWNER}__in": owners}).annotate(newer=newer).filter(newer__gt=most)
    keys = list(beyond.order_by("saved_at").values_list("pk", flat=True)[:_MOST_LOGS])
    return deleted + _delete(KernelLog, keys, _LOGS_AT_ONCE)


def delete_old_history(now: datetime) -> int:
    """Delete the history of sessions that ended more than ``KEEP_HISTORY`` ago (0: nothing is deleted); returns the
    number of rows."""
    if not settings.KEEP_HISTORY:
        return 0
    ended = ComputeSession.objects.finished().filter(ended_at__lt=now - settings.KEEP_HISTORY)
    with_rows = ended.filter(Exists(SchedulingRecord.objects.filter(session=OuterRef("pk"))))
    sessions = list(with_rows.order_by("-ended_at", "-pk").values_list("pk", flat=True)[:_MOST_SESSIONS])
    if not sessions:
        return 0
    rows = SchedulingRecord.objects.filter(session__in=sessions).order_by("pk")
    return _delete(SchedulingRecord, list(rows.values_list("pk", flat=True)[:_MOST_RECORDS]), _RECORDS_AT_ONCE)


def _logs_of_ended() -> Any:
    return KernelLog.objects.filter(kernel__session__status__in=sorted(TERMINAL))


def _delete(model: Any, keys: Sequence[Any], at_once: int) -> int:
    parts = [keys[start : start + at_once] for start in range(0, len(keys), at_once)]
    return sum(model.objects.filter(pk__in=part).delete()[0] for part in parts)
