"""Computes limits, holdings and pending amounts of a session's holders. All pages that show these numbers use this
module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backendai.domain.accounts.models import KeyPair, Project, ResourcePolicy, User
from backendai.domain.accounts.policies.applicable import DOMAIN, KEY_PAIR, PROJECT, USER, Limited, key_of
from backendai.domain.accounts.policies.rules import thousandths
from backendai.domain.compute.services.requests.limits import limit_views, waiting_of
from backendai.scheduler.snapshot import LimitView


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limit, use and pending amount of one slot (thousandths) or of the number of sessions. ``pending_limit``: the most
    that may be pending. None: unlimited."""

    limit: int | None
    used: int
    pending: int = 0
    pending_limit: int | None = None

    @property
    def remaining(self) -> int | None:
        """The limit minus the use, at least 0."""
        return None if self.limit is None else max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class HolderLimits:
    """The allowances of one holder by slot, and for its number of sessions. ``policy``: the policy that sets the limits
    (None: unlimited)."""

    scope: str
    name: str
    slots: Mapping[str, Allowance]
    sessions: Allowance
    policy: ResourcePolicy | None = None

    @property
    def label(self) -> str:
        """The holder as text, such as ``key pair AK01``."""
        return f"{self.scope.replace('-', ' ')} {self.name}"


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """The limits of a user's launch in a project, the narrowest holder first. ``strictest``: by slot, the holder with
    the least left (None: unlimited). ``strictest_sessions``: the same for the number of sessions."""

    project: Project | None
    holders: Sequence[HolderLimits]
    strictest: Mapping[str, HolderLimits | None]
    strictest_sessions: HolderLimits | None

    def remaining(self, slot: str) -> int | None:
        """Return how much of this slot the policies leave to the user; None: unlimited."""
        holder = self.strictest.get(slot)
        return holder.slots[slot].remaining if holder else None

    @property
    def remaining_sessions(self) -> int | None:
        """The number of further sessions of the user that can hold slots at the same time; None: unlimited."""
        return self.strictest_sessions.sessions.remaining if self.strictest_sessions else None


def own_limits(user: User, project: Project | None, *, also: Collection[str] = ()) -> OwnLimits:
    """Return limit, use and pending amount of every holder to which a user's launch in this project counts.

    By slot, and for the number of sessions. Holders without limits and the project's domain are included. ``also``:
    slots to include besides those that a limit names or a holder uses. At most five queries.
    """
    everybody = _everybody(user, project)
    keys = [holder.key for holder in everybody]
    views, (slots, sessions) = limit_views(everybody), waiting_of(keys)
    names = {"cpu", "mem", *also}
    for holder in everybody:
        view = views[holder.key]
        names |= set(view.slots) | view.forbidden | set(view.used) | set(holder.policy.max_pending_slots)
        names |= slots[holder.key].keys()
    ordered = in_order(names)
    holders = [
        _with_waiting(holder_limits(views[each.key], ordered), each.policy, slots[each.key], sessions[each.key])
        for each in everybody
    ]
    return OwnLimits(
        project=project,
        holders=holders,
        strictest={name: _strictest(holders, [each.slots[name] for each in holders]) for name in ordered},
        strictest_sessions=_strictest(holders, [each.sessions for each in holders]),
    )


def holder_limits(view: LimitView, names: Iterable[str]) -> HolderLimits:
    """Return the allowances of these slots under the limits of one holder."""

    def limit(name: str) -> int | None:
        if name in view.slots:
            return view.slots[name]
        return 0 if view.unnamed_limited or name in view.forbidden else None

    slots = {name: Allowance(limit(name), view.used[name]) for name in names}
    return HolderLimits(view.scope, view.name, slots, Allowance(view.max_sessions, view.sessions))


def in_order(names: Iterable[str]) -> list[str]:
    """Return the slots in display order: cpu and mem first, the others by name."""
    return sorted(names, key=lambda name: (name != "cpu", name != "mem", name))


def least(numbers: Iterable[int | None]) -> int | None:
    """Return the smallest number; None (unlimited) for no numbers."""
    return min((number for number in numbers if number is not None), default=None)


def _everybody(user: User, project: Project | None) -> list[Limited]:
    """Return the holders of a launch, the narrowest first. Holders without a policy get one without limits."""
    key_pair: KeyPair | None = user.key_pairs.main_first().first()
    rows: list[tuple[str, Any, str]] = [(KEY_PAIR, key_pair, key_pair.access_key)] if key_pair else []
    rows.append((USER, user, user.email))
    if project:
        rows += [(PROJECT, project, project.name), (DOMAIN, project.domain, project.domain.name)]
    wanted = {row.policy_id for _, row, _ in rows if row.policy_id is not None}
    policies = ResourcePolicy.objects.in_bulk(wanted) if wanted else {}
    free = ResourcePolicy()
    return [Limited(key_of(scope, row.pk), scope, name, policies.get(row.policy_id, free)) for scope, row, name in rows]


def _with_waiting(
    holder: HolderLimits, policy: ResourcePolicy, waiting: Mapping[str, int], sessions: int
) -> HolderLimits:
    most = thousandths(policy.max_pending_slots, field="max_pending_slots")
    slots = {
        name: replace(one, pending=waiting.get(name, 0), pending_limit=most.get(name))
        for name, one in holder.slots.items()
    }
    of_sessions = replace(holder.sessions, pending=sessions, pending_limit=policy.max_pending_sessions)
    return replace(holder, slots=slots, sessions=of_sessions, policy=policy if policy.pk else None)


def _strictest(holders: Sequence[HolderLimits], allowances: Sequence[Allowance]) -> HolderLimits | None:
    left = [(one.remaining, at) for at, one in enumerate(allowances) if one.remaining is not None]
    return holders[min(left)[1]] if left else None
