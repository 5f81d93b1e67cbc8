"""Reads the policy limits of holders, and the amounts that their sessions hold in all resource groups."""

from __future__ import annotations

from collections.abc import Collection

from backendai.domain.accounts.policies.applicable import limited_holders
from backendai.domain.compute.services.requests.limits import limit_views
from backendai.scheduler.snapshot import Holder, LimitView


def read_limits(holders: Collection[Holder]) -> dict[str, LimitView]:
    """Return the limits of the holders that have a policy, by key. Four queries; one if no holder has a policy."""
    return limit_views(limited_holders({key for holder in set(holders) for key in holder.keys}))
