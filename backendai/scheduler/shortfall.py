"""Why a request found no agent now: how many agents each filter removed, and what the closest one lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backendai.core.slots import Slots
from backendai.scheduler.demand import Request
from backendai.scheduler.feasible import (
    FILTERS,
    FIXED_FILTERS,
    KERNELS_FILTER,
    SLOTS_FILTER,
    Filter,
    describe_request,
    distance,
    first_obstacle,
    shortage_details,
    shortages,
)
from backendai.scheduler.plan import Reason, Step
from backendai.scheduler.rooms import Room


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a demand could not be placed, with what was looked at."""

    reason: Reason
    steps: tuple[Step, ...]


def refusal_of(request: Request, rooms: Sequence[Room], placed: int, kernels: int) -> Refusal:
    """Return why no room takes the request, after ``placed`` of the session's ``kernels`` requests found theirs."""
    removed: dict[str, list[Room]] = {each.step: [] for each in FILTERS}
    for room in rooms:
        obstacle = first_obstacle(room, request)
        if obstacle is not None:
            removed[obstacle.step].append(room)
    counts = {step: len(gone) for step, gone in removed.items()}
    too_small, full = removed[SLOTS_FILTER.step], removed[KERNELS_FILTER.step]
    reason = _lacks_slots(request, too_small, counts) if too_small else _lacks_kernels(request, full, counts)
    if kernels > 1:
        start = f"{placed} of {kernels} kernels found an agent, and all must start together. "
        details = {**reason.details, "placed": placed, "kernels": kernels}
        reason = Reason(reason.code, start + reason.message, details)
    return Refusal(reason, _filter_steps(FILTERS, counts, len(rooms), reason.code))


def fixed_steps(architecture: str, rooms: Sequence[Room]) -> tuple[Step, ...]:
    """Return the steps of the filters that do not depend on the amounts, for requests of this architecture."""
    request = Request(Slots(), 0, architecture)
    counts = {each.step: 0 for each in FIXED_FILTERS}
    for room in rooms:
        obstacle = first_obstacle(room, request, FIXED_FILTERS)
        if obstacle is not None:
            counts[obstacle.step] += 1
    return _filter_steps(FIXED_FILTERS, counts, len(rooms), "")


def _lacks_slots(request: Request, rooms: list[Room], counts: dict[str, int]) -> Reason:
    closest = min(rooms, key=lambda room: (distance(room, request), room.order))
    missing = shortages(closest, request)
    lacking = "; ".join(str(shortage) for shortage in missing)
    message = f"No agent has room for {describe_request(request)} now: {closest.name} comes closest ({lacking})."
    return Reason("insufficient-resources", message, {**shortage_details(closest.name, missing), "agents": counts})


def _lacks_kernels(request: Request, rooms: list[Room], counts: dict[str, int]) -> Reason:
    closest = min(rooms, key=lambda room: (room.kernels - (room.max_kernels or 0), room.order))
    asked = "1 more kernel" if request.kernels == 1 else f"{request.kernels} more kernels"
    message = f"No agent takes {asked} now: {closest.name} runs {closest.kernels} of at most {closest.max_kernels}."
    details = {"agent": closest.name, "wanted": request.kernels, "kernels": closest.kernels}
    return Reason("too-many-kernels", message, {**details, "limit": closest.max_kernels, "agents": counts})


def _filter_steps(filters: Sequence[Filter], counts: dict[str, int], total: int, code: str) -> tuple[Step, ...]:
    """Return one step per filter, up to the one that left no agent; that one bears the code."""
    steps = []
    left = total
    for each in filters:
        came, left = left, left - counts[each.step]
        steps.append(Step(each.step, left > 0, f"removed {counts[each.step]} of {came} agents", "" if left else code))
        if not left:
            break
    return tuple(steps)
