"""Runs the pass over inference endpoints. Beat (every 2 s), hints and the clock thread call it."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.utils import timezone

from backendai.domain.cluster.services import release_lease, take_lease
from backendai.domain.serving.models import Endpoint
from backendai.domain.serving.prometheus import value_of
from backendai.domain.serving.reading import read_endpoints
from backendai.domain.serving.services.acting import act
from backendai.domain.serving.services.metrics import ask_all, queries_of_rules, write_values
from backendai.domain.serving.services.reconcile import follow

SERVING_LEASE, METRICS_LEASE = "serving", "metrics"
_LEASE = timedelta(seconds=30)


def run_serving(now: datetime) -> int:
    """Update replicas from their sessions, and start or drain replicas as each endpoint needs; returns how many
    changed. 0 if another process runs the pass or there is no endpoint."""
    if not Endpoint.objects.unfinished().exists():
        return 0
    owner = _owner()
    if not take_lease(SERVING_LEASE, owner, now=now, duration=_LEASE):
        return 0
    try:
        moved = follow(read_endpoints(now))
        return moved + act(read_endpoints(now))
    finally:
        release_lease(SERVING_LEASE, owner, now=timezone.now())


def read_metrics(now: datetime) -> int:
    """Ask Prometheus for the values of scaling rules; returns how many were read. 0 if another process is asking.
    Without an address or scaling rules, one query at most."""
    if not settings.PROMETHEUS_URL or not (queries := queries_of_rules()):
        return 0
    owner = _owner()
    if not take_lease(METRICS_LEASE, owner, now=now, duration=_LEASE):
        return 0
    try:
        write_values(ask_all(queries, partial(value_of, settings.PROMETHEUS_URL)), now)
        return len(queries)
    finally:
        release_lease(METRICS_LEASE, owner, now=timezone.now())


def _owner() -> str:
    return f"{socket.gethostname()[:24]}:{os.getpid()}:{threading.get_ident()}"
