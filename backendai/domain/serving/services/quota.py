"""What policies let owners have of endpoints: how many, and how many replicas of which size each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.policies.applicable import DOMAIN, PROJECT, Limited, strictest
from backendai.domain.compute.services.requests.limits import beyond_limits, key_pair_of, limits_on, lock_holders
from backendai.domain.serving.models import Endpoint, Revision


def check_maximum(limited: Sequence[Limited], each: Slots, maximum: int) -> None:
    """Refuse more replicas of this total size than policies can ever hold; the error says how many they can."""
    found = strictest(limited, "max_replicas_per_endpoint")
    if found and maximum > found[0]:
        raise UserError(
            "The limit of replicas for each endpoint of {holder} is {most}: lower the maximum.",
            holder=found[1].label,
            **_about("too-many-replicas", maximum, found[0]),
        )
    found = strictest(limited, "max_sessions")
    if found and maximum > found[0]:
        raise UserError(
            "A replica is a session, and {holder} may have {most} at once: lower the maximum to {most}.",
            holder=found[1].label,
            **_about("beyond-policy", maximum, found[0]),
        )
    reason = beyond_limits(limited, each * maximum)
    if reason is not None:
        most = _most_that_fit(limited, each, maximum)
        if most == 0:
            about = _about("beyond-policy", maximum, most)
            raise UserError("Policies allow no replica of this size. {reason}", reason=reason.message, **about)
        raise UserError(
            "{wanted} replicas can never run at once: policies allow {most} of this size. {reason}",
            reason=reason.message,
            **_about("beyond-policy", maximum, most),
        )


def check_maximum_of(endpoint: Endpoint, maximum: int) -> None:
    """Refuse a maximum that policies can never hold with the revisions that serve or are about to."""
    owner: User = endpoint.owner
    project = Project.objects.select_related("domain").get(pk=endpoint.project_id)
    limited = limits_on(owner, project, key_pair_of(owner))
    for revision in Revision.objects.filter(pk__in=filter(None, (endpoint.current_id, endpoint.next_id))):
        check_maximum(limited, Slots.parse(revision.slots) * revision.cluster_size, maximum)


def check_number(limited: Sequence[Limited], endpoint: Endpoint) -> None:
    """Raise Conflict if there are more endpoints than a policy allows. Call at the end of the transaction that writes
    the endpoint, which is counted; the holders stay locked until its end."""
    limited = [one for one in limited if one.policy.max_endpoints is not None]
    if not limited:
        return
    lock_holders(one.key for one in limited)
    for one in limited:
        number, limit = Endpoint.objects.live().filter(**_of(one, endpoint)).count(), one.policy.max_endpoints
        if limit is not None and number > limit:
            raise Conflict(
                "The number of endpoints of {holder} is {number}, the limit {limit}. Delete an endpoint first.",
                holder=one.label,
                number=number - 1,
                limit=limit,
                code="too-many-endpoints",
                scope=one.scope,
                name=one.name,
            )


def _of(holder: Limited, endpoint: Endpoint) -> dict[str, Any]:
    """Return the filter of the holder's endpoints. Those of a key pair are its owner's: each is launched with it."""
    if holder.scope == PROJECT:
        return {"project": endpoint.project_id}
    if holder.scope == DOMAIN:
        return {"project__domain": endpoint.project.domain_id}
    return {"owner": endpoint.owner_id}


def _most_that_fit(limited: Sequence[Limited], each: Slots, too_many: int) -> int:
    return next((number for number in range(too_many - 1, 0, -1) if beyond_limits(limited, each * number) is None), 0)


def _about(code: str, wanted: int, most: int) -> dict[str, Any]:
    return {"field": "maximum", "code": code, "wanted": wanted, "most": most}
