"""Time in tests of the repair pass: it is an argument, and agents answer for as long as a test says so."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from django.utils import timezone

from backendai.base.wire.messages import SyncUp
from backendai.domain.cluster.models import Agent, Reachability
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.portal.loops.repair.rounds import repair


def later(**duration: float) -> datetime:
    """Return the moment so much later than now."""
    return timezone.now() + timedelta(**duration)


def repair_at(moment: datetime, *, silent: tuple[Agent, ...] = ()) -> None:
    """Run the repair pass twice at this moment, as two control workers would; all agents answer but the silent ones.
    Passes have gone on until then, and the portal's door is open."""
    Agent.objects.exclude(pk__in=[agent.pk for agent in silent]).update(last_seen_at=moment)
    passes_went_on_until(moment)
    with mock.patch("backendai.portal.loops.repair.reachability.door_answers", return_value=True):
        repair(moment)
        repair(moment)


def passes_went_on_until(moment: datetime) -> None:
    """Record that agents could reach the portal without a break for a long time."""
    first = {"pk": 1, "since": moment - timedelta(days=9999)}
    Reachability.objects.update_or_create(
        pk=1, defaults={"noted_at": moment}, create_defaults=first | {"noted_at": moment}
    )


def sync_of(**over: Any) -> SyncUp:
    """Return what a small node says about itself."""
    said: dict[str, Any] = {
        "boot_id": "b",
        "version": "1",
        "backend": "docker",
        "architecture": "x86_64",
        "gateway_url": "http://127.0.0.1:1",
        "capacity": {"cpu": "4", "mem": str(8 * 2**30)},
    }
    return SyncUp(**(said | over))


def only_kernel(session: ComputeSession) -> Kernel:
    return session.kernels.get()


def rows(session: ComputeSession, **only: str) -> list[tuple[str, str, str, int]]:
    """Return phase, result, code and attempts of the session's history rows, the oldest first."""
    found = SchedulingRecord.objects.filter(session=session, **only).order_by("id")
    return list(found.values_list("phase", "result", "error_code", "attempts"))


def message_of(session: ComputeSession, code: str) -> str:
    return SchedulingRecord.objects.get(session=session, error_code=code).message
