"""Explains why no agent can hold a request now. Counts the agents that each filter removed, and finds the slots that
the closest agent lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backendai.base.core.messages import Message
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.capacity.feasible import (
    broken_devices,
    describe_request,
    fragment_details,
    fragments,
    shortage_details,
    shortages,
)
from backendai.scheduler.capacity.filters import (
    DESIGNATED_FILTER,
    DEVICES_FILTER,
    FILTERS,
    FIXED_FILTERS,
    KERNELS_FILTER,
    SLOTS_FILTER,
    STATE_FILTERS,
    STORAGE_FILTER,
    Filter,
    first_obstacle,
    removed_by,
    ruled_out,
)
from backendai.scheduler.capacity.storage import cannot_mount, hosts_of, where_folders_lie
from backendai.scheduler.choose import with_amounts
from backendai.scheduler.demand import Request
from backendai.scheduler.plan import Reason, Step

_TOLD_APART = frozenset({DESIGNATED_FILTER.step, STORAGE_FILTER.step})
Counts = dict[str, int]  # by the step of a filter: how many agents it removed


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a session could not be placed, and the checks that led to it."""

    reason: Reason
    steps: tuple[Step, ...]


_NO_ROOM = Refusal(Reason("insufficient-resources", ""), ())


def refusal_of(request: Request, states: AgentStates, placed: int, kernels: int) -> Refusal:
    """Return why no agent can hold the request. ``placed``: how many of the session's ``kernels`` requests got an agent
    before this one."""
    if not states.explains and any(_suits(state, request) for state in states.all):
        return _NO_ROOM
    counts = dict(_fixed_counts(request, states))
    left = len(states.all) - sum(counts.values())
    counts[KERNELS_FILTER.step] = full = len(_full(request, states)) if left else 0
    broken = _broken(request, states) if left > full else []
    counts[SLOTS_FILTER.step] = left - full - len(broken)
    if request.kinds and states.has_devices:
        counts[DEVICES_FILTER.step] = len(broken)
    reason = _reason(request, states, counts, broken)
    if kernels > 1:
        start = Message(
            "{placed} of {kernels} kernels found an agent, and all must start together.",
            placed=placed,
            kernels=kernels,
        )
        details = {**reason.details, "placed": placed, "kernels": kernels}
        reason = Reason(reason.code, Message.joined([start, reason.message]), details, never=reason.never)
    return Refusal(reason, _filter_steps(FILTERS, counts, len(states.all), reason.code))


def passed_steps(request: Request, states: AgentStates) -> tuple[Step, ...]:
    """Return the steps of a placed request for all filters that do not depend on free amounts."""
    return _filter_steps(FIXED_FILTERS, _fixed_counts(request, states), len(states.all), "")


def _fixed_counts(request: Request, states: AgentStates) -> Counts:
    return {step: len(agents) for step, agents in _removed(request, states).items()}


def _removed(request: Request, states: AgentStates) -> dict[str, Sequence[AgentState]]:
    """Return the agents that each filter without free amounts removes. Computed once for equal requests."""
    key = request.designated, request.architecture, request.node_images, request.storage, request.joins
    removed = states.removed.get(key)
    if removed is None:
        removed = states.removed[key] = removed_by(FIXED_FILTERS, states.all, request)
    return removed


def _full(request: Request, states: AgentStates) -> list[AgentState]:
    """Return the candidate agents that have too many kernels."""
    more = request.kernels
    full = [state for state in states.limited if state.kernels + more > (state.max_kernels or 0)]
    return [state for state in full if _suits(state, request)] if full else full


def _broken(request: Request, states: AgentStates) -> list[AgentState]:
    """Return the agents that have enough free in total, but on devices that one kernel cannot combine."""
    if not request.kinds or not states.has_devices:
        return []
    return [state for state in with_amounts(request, states) if _suits(state, request)]


def _suits(state: AgentState, request: Request) -> bool:
    return state.bucket is not None and first_obstacle(state, request, FIXED_FILTERS) is None


def _reason(request: Request, states: AgentStates, counts: Counts, broken: list[AgentState]) -> Reason:
    """Return the reason of the filter that removed the last candidate agents. Its details contain the counts of all
    filters."""
    last = next((step for step in reversed(counts) if counts[step]), "")
    if last == DEVICES_FILTER.step:
        reason = _lacks_devices(request, broken)
    elif last == SLOTS_FILTER.step:
        reason = _lacks_slots(request, states)
    elif last == KERNELS_FILTER.step:
        reason = _lacks_kernels(request, states)
    else:
        reason = _unsuitable(request, states, last)
    names = sorted(state.name for state in states.all if state.id in request.designated) if request.designated else []
    details = {**reason.details, **({"designated": names} if names else {}), "agents": counts}
    message = reason.message
    if last not in _removed(request, states) and (away := _away(request, states)):
        message = Message.joined([message, away])
    if request.storage and counts[STORAGE_FILTER.step] and last != STORAGE_FILTER.step:
        message = Message.joined([where_folders_lie(request.storage, states.all), message])
        details["storage_hosts"] = hosts_of(request.storage)
    return Reason(reason.code, message, details, never=reason.never)


def _lacks_devices(request: Request, states: list[AgentState]) -> Reason:
    def key(state: AgentState) -> tuple[int, int]:
        return -max((each.largest for each in fragments(state, request)), default=0), state.order

    closest = min(states, key=key)
    broken = fragments(closest, request)
    message = Message(
        "{request} has {asked} on devices that can be combined now: {closest} comes closest ({broken}).",
        request=_agents(request),
        asked=describe_request(request),
        closest=closest.name,
        broken=Message.joined(map(str, broken), "; "),
    )
    return Reason("fragmented", message, fragment_details(closest.name, broken))


def _lacks_slots(request: Request, states: AgentStates) -> Reason:
    def suits(state: AgentState) -> bool:
        return state.has_kernels_left(request.kernels) and _suits(state, request)

    found = states.closest(request, suits)
    assert found is not None  # else another filter would have removed the last agent
    closest = found[1]
    missing = shortages(closest, request)
    lacking = Message.joined(map(str, missing), "; ")
    message = Message(
        "{request} has room for {asked} now: {closest} comes closest ({lacking}).",
        request=_agents(request),
        asked=describe_request(request),
        closest=closest.name,
        lacking=lacking,
    )
    message = Message.joined([message, broken_devices([closest], [each.name for each in missing])])
    return Reason("insufficient-resources", message, shortage_details(closest.name, missing))


def _lacks_kernels(request: Request, states: AgentStates) -> Reason:
    closest = min(_full(request, states), key=lambda state: (state.kernels - (state.max_kernels or 0), state.order))
    asked = (
        Message("1 more kernel") if request.kernels == 1 else Message("{kernels} more kernels", kernels=request.kernels)
    )
    message = Message(
        "{request} takes {asked} now: {closest} runs {kernels} of at most {max_kernels}.",
        request=_agents(request),
        asked=asked,
        closest=closest.name,
        kernels=closest.kernels,
        max_kernels=closest.max_kernels,
    )
    details = {"agent": closest.name, "wanted": request.kernels, "kernels": closest.kernels}
    return Reason("too-many-kernels", message, {**details, "limit": closest.max_kernels})


def _unsuitable(request: Request, states: AgentStates, last: str) -> Reason:
    """Return why no agent suits the request, independent of free amounts: what rules out each agent, the most helpful
    cause first."""
    if not states.all:
        return Reason("no-agent", Message("The resource group has no agents: none is registered yet."))
    others, removed = [each for each in FIXED_FILTERS if each.step not in _TOLD_APART], _removed(request, states)
    if last == STORAGE_FILTER.step and request.storage:
        reason = cannot_mount(request.storage, states.all)
        if not any(removed.get(each.step) for each in others):
            return reason
        return replace(reason, message=Message.joined([reason.message, ruled_out(others, removed, request).message]))
    if last != DESIGNATED_FILTER.step:
        return ruled_out(others, removed, request)
    unknown = sorted(map(str, request.designated))
    message = Message("None of the designated agents is in this group ({unknown}).", unknown=unknown)
    return Reason("designated-agent-unknown", message, {"unknown": unknown}, never=True)


def _away(request: Request, states: AgentStates) -> str:
    """Return which suitable agents take no sessions now; empty if all do."""
    removed = _removed(request, states)
    is_any = any(removed[each.step] for each in STATE_FILTERS)
    return ruled_out(STATE_FILTERS, removed, request).message if is_any else ""


def _agents(request: Request) -> str:
    return Message("No designated agent") if request.designated else Message("No agent")


def _filter_steps(filters: Sequence[Filter], counts: Counts, total: int, code: str) -> tuple[Step, ...]:
    """Return one step for each filter, up to the filter that removed the last candidate agents. That step gets the
    code."""
    steps = []
    left = total
    for each in filters:
        if each.step in counts:
            came, left = left, left - counts[each.step]
            message = Message("{counts} of {came} agents ruled out.", counts=counts[each.step], came=came)
            steps.append(Step(each.step, left > 0, message, "" if left else code))
            if not left:
                break
    return tuple(steps)
