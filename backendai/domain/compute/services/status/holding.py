"""Locks rows in one order, so that no deadlock occurs: sessions before their kernels, sessions by id."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import connection

from backendai.base.db.bulk import among
from backendai.domain.compute.models import ComputeSession, Kernel


def lock_sessions_of(kernel_ids: Collection[UUID]) -> None:
    """Lock the sessions of these kernels until the transaction ends. SQLite needs no lock, as it has only one
    writer."""
    if connection.features.has_select_for_update:
        sessions = Kernel.objects.filter(pk__in=among(kernel_ids)).order_by().values("session")
        held = ComputeSession.objects.filter(pk__in=sessions).order_by("pk").select_for_update(no_key=True)
        list(held.values_list("pk"))


def lock_pending(session_ids: Collection[UUID]) -> set[UUID]:
    """Lock the rows of the pending ones among these sessions, and return their ids. The locks are held until the
    transaction ends."""
    rows = ComputeSession.objects.pending().filter(pk__in=among(session_ids)).order_by("pk")
    return set(rows.select_for_update(no_key=True).values_list("pk", flat=True)) if session_ids else set()
