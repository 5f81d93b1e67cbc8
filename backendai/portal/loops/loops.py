"""The passes. Beat, hints and the clock thread call the same functions; leases prevent two concurrent runs of a
pass."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.utils import timezone

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.services import release_lease, take_lease
from backendai.domain.compute.models import ComputeSession
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.reading import read_runs
from backendai.domain.pipelines.services.acting import pass_over
from backendai.domain.serving.models import Endpoint
from backendai.domain.serving.prometheus import value_of
from backendai.domain.serving.reading import read_endpoints
from backendai.domain.serving.services.acting import act
from backendai.domain.serving.services.metrics import ask_all, queries_of_rules, write_values
from backendai.domain.serving.services.reconcile import follow
from backendai.portal.loops.counts import counted
from backendai.portal.loops.group_pass import schedule
from backendai.portal.loops.outages import log_failure
from backendai.portal.loops.repair.rounds import repair

_lock = threading.Lock()
_resting = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection in this process until the last such block ends."""
    global _resting
    with _lock:
        _resting += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting:
                gc.enable()


logger = logging.getLogger(__name__)

PASS_LEASE, REPAIR_LEASE, PIPELINES_LEASE = "pass", "repair", "pipelines"
SERVING_LEASE, METRICS_LEASE = "serving", "metrics"
_LEASE = timedelta(seconds=30)
_PATIENCE_SECONDS, _RETRY_SECONDS = 0.5, 0.02
_GROUPS_AT_ONCE = 4


def run_pass(now: datetime) -> int:
    """Run the scheduler over every group with pending sessions; returns how many sessions were placed. 0 if another
    process runs the pass."""
    return single(PASS_LEASE, now, lambda: _all_groups(now))


def schedule_group(group_id: int, now: datetime) -> int:
    """Run the scheduler over one group; returns how many sessions this call placed.

    Of concurrent calls in this process one runs and one waits; further calls return 0, as the waiting call reads after
    their writes. If another process runs a pass, the call waits up to ``_PATIENCE_SECONDS`` and then returns 0.
    """
    started_at = time.monotonic()
    with _lines[group_id].turn() as is_ours:
        group = ResourceGroup.objects.filter(pk=group_id).first() if is_ours else None
        if group is None:
            return 0
        name = f"group.{group_id}"
        return single(name, now, lambda: _one_group(group, now), started_at=started_at, patience=_PATIENCE_SECONDS)


def run_repair(now: datetime) -> int:
    """Run the repair pass; returns how many rows were repaired. 0 if another process runs the pass."""
    return single(REPAIR_LEASE, now, lambda: repair(now))


def run_pipelines(now: datetime) -> int:
    """Advance every unfinished run; returns how many changed.

    Of concurrent calls in this process one runs and one waits; further calls return 0, as the waiting call reads after
    their writes. If another process keeps the pass beyond ``_PATIENCE_SECONDS``, the next pass comes in two seconds.
    """
    with _line_of_runs.turn() as is_ours:
        if not is_ours or not Run.objects.unfinished().exists():
            return 0
        return single(PIPELINES_LEASE, now, lambda: pass_over(read_runs(now)), patience=_PATIENCE_SECONDS)


def run_serving(now: datetime) -> int:
    """Update replicas from their sessions, and start or drain replicas as each endpoint needs; returns how many
    changed. 0 if another process runs the pass or there is no endpoint."""
    if not Endpoint.objects.unfinished().exists():
        return 0
    return single(SERVING_LEASE, now, lambda: follow(read_endpoints(now)) + act(read_endpoints(now)))


def read_metrics(now: datetime) -> int:
    """Ask Prometheus for the values of scaling rules; returns how many were read. 0 if another process is asking.
    Without an address or scaling rules, one query at most."""
    if not settings.PROMETHEUS_URL or not (queries := queries_of_rules()):
        return 0

    def ask() -> int:
        write_values(ask_all(queries, partial(value_of, settings.PROMETHEUS_URL)), now)
        return len(queries)

    return single(METRICS_LEASE, now, ask)


def _all_groups(now: datetime) -> int:
    waiting = ComputeSession.objects.pending().order_by().values_list("resource_group_id", flat=True).distinct()
    group_ids = list(waiting)
    # SQLite has one writer at a time anyway, and other threads do not see rows of an open transaction.
    if len(group_ids) < 2 or connection.vendor == "sqlite" or connection.in_atomic_block:
        return sum(_one_of_many(group_id, now) for group_id in group_ids)
    with ThreadPoolExecutor(min(_GROUPS_AT_ONCE, len(group_ids)), thread_name_prefix="group") as threads:
        return sum(threads.map(lambda group_id: _in_own_thread(group_id, now), group_ids))


def _in_own_thread(group_id: int, now: datetime) -> int:
    try:
        return _one_of_many(group_id, now)
    finally:
        connection.close()  # this thread ends now, and so must its connection


def _one_of_many(group_id: int, now: datetime) -> int:
    try:
        return schedule_group(group_id, now)
    except Exception as error:
        log_failure(logger, error, "the pass over resource group %s could not begin", group_id)
        return 0


def _one_group(group: ResourceGroup, now: datetime) -> int:
    """Run one pass over a group without garbage collection; returns how many sessions were placed. Logs its own
    errors."""
    with collector_paused():
        return schedule(group, now)


class Line:
    """Merges concurrent calls. One thread runs and one waits; later callers rely on the waiting thread's run."""

    def __init__(self) -> None:
        self._doing, self._waiting = threading.Lock(), threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Yield True if the caller has to run now; False if a waiting thread will run for the caller."""
        if not self._waiting.acquire(blocking=False):
            yield False
            return
        with self._doing:
            self._waiting.release()
            yield True


def single(
    name: str,
    now: datetime,
    work: Callable[[], int],
    *,
    started_at: float | None = None,
    patience: float = 0.0,
    duration: timedelta = _LEASE,
) -> int:
    """Return ``work()``, run under the lease ``name``; 0 if another process keeps the lease for ``patience`` seconds.
    ``started_at``: the monotonic time of ``now``.

    A caller that has just written to the database should wait, as the other process may have read it before.
    """
    owner = f"{_PROCESS}:{threading.get_ident()}"
    deadline = time.monotonic() + patience
    started_at = time.monotonic() if started_at is None else started_at
    while not take_lease(name, owner, now=_later(now, started_at), duration=duration, has_died=_has_died):
        if time.monotonic() >= deadline:
            return 0
        time.sleep(_RETRY_SECONDS)
    try:
        return counted(name, work)
    finally:
        release_lease(name, owner, now=timezone.now())


def _later(now: datetime, started_at: float) -> datetime:
    """Return the caller's ``now`` advanced by the time spent waiting."""
    return now + timedelta(seconds=time.monotonic() - started_at)


def _has_died(owner: str) -> bool:
    """Return whether the lease's owner was a process of this machine that has died; False for other machines."""
    host, pid, incarnation, *_ = owner.split(":")
    if host != _HOST:
        return False
    if int(pid) == os.getpid():  # after a restart in a container, the process often has the same id
        return incarnation != _INCARNATION
    return not Path(f"/proc/{pid}").exists()


_HOST = socket.gethostname()[:24].replace(":", "-")
_INCARNATION = secrets.token_hex(4)
_PROCESS = f"{_HOST}:{os.getpid()}:{_INCARNATION}"
_lines: defaultdict[int, Line] = defaultdict(Line)
_line_of_runs = Line()
