"""Computes the usual duration of each step of a start from recent sessions, by image and resource group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_datetime

from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Outcome

STAGES = ("hand-over", "pull", "create")
_LOOKS_AT = 500  # newest sessions with any image, read from one index at a fixed cost
_MOST_STARTS = 50
_FEWEST_STARTS = 3  # with fewer starts there is no usual duration


@dataclass(frozen=True, slots=True)
class UsualStart:
    """The median seconds of each stage over ``starts`` starts; 0 if most starts skipped the stage. ``otherwise``: the
    median over starts that did not skip it."""

    starts: int
    seconds: Mapping[str, float]
    otherwise: Mapping[str, float]

    @property
    def total(self) -> float:
        """The sum of the stages' median seconds."""
        return sum(self.seconds.values())


def usual_start(image_id: UUID, group_id: int) -> UsualStart | None:
    """Return the usual start, computed from up to ``_MOST_STARTS`` starts among the newest ``_LOOKS_AT`` sessions; None
    if there are too few. One query."""
    newest = ComputeSession.objects.order_by("-created_at", "-id").values("pk")[:_LOOKS_AT]
    mains = Kernel.objects.filter(rank=0, session__in=newest, started_at__isnull=False)
    alike = mains.filter(session__image=image_id, session__resource_group=group_id)
    taken = [stage_seconds(steps) for steps in alike.order_by().values_list("steps", flat=True)[:_MOST_STARTS]]
    taken = [stages for stages in taken if stages]
    if len(taken) < _FEWEST_STARTS:
        return None
    all_of = {stage: [one.get(stage, 0.0) for one in taken] for stage in STAGES}
    return UsualStart(
        starts=len(taken),
        seconds={stage: median(every) for stage, every in all_of.items()},
        otherwise={stage: median([one for one in every if one] or [0.0]) for stage, every in all_of.items()},
    )


def stage_seconds(steps: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds of each completed stage of a kernel's start."""
    found: dict[str, float] = {}
    for step in steps:
        start, end = _moment(step, "started_at"), _moment(step, "ended_at")
        if start and end and step.get("step") in STAGES and step.get("result") == Outcome.SUCCESS:
            found[step["step"]] = found.get(step["step"], 0.0) + max(0.0, (end - start).total_seconds())
    return found


def _moment(step: Mapping[str, Any], name: str) -> datetime | None:
    return parse_datetime(str(step.get(name, "")))
