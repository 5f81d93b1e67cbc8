"""Time in tests of the repair pass: it is an argument, and agents answer for as long as a test says so."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.controller.repair import repair


def later(**duration: float) -> datetime:
    """Return the moment so much later than now."""
    return timezone.now() + timedelta(**duration)


def repair_at(moment: datetime, *, silent: tuple[Agent, ...] = ()) -> None:
    """Run the repair pass twice at this moment, as two control workers would; all agents answer but the silent ones."""
    Agent.objects.exclude(pk__in=[agent.pk for agent in silent]).update(last_seen_at=moment)
    repair(moment)
    repair(moment)


def only_kernel(session: ComputeSession) -> Kernel:
    return session.kernels.get()


def rows(session: ComputeSession, **only: str) -> list[tuple[str, str, str, int]]:
    """Return phase, result, code and attempts of the session's history rows, the oldest first."""
    found = SchedulingRecord.objects.filter(session=session, **only).order_by("id")
    return list(found.values_list("phase", "result", "error_code", "attempts"))


def message_of(session: ComputeSession, code: str) -> str:
    return SchedulingRecord.objects.get(session=session, error_code=code).message
