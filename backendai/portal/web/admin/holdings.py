"""Bars of the usage and limits of a user or project."""

from __future__ import annotations

from backendai.domain.accounts.models import Project, ResourcePolicy, User
from backendai.domain.accounts.policies.applicable import PROJECT, USER, Limited, key_of
from backendai.domain.compute.services.requests.limits import limit_views
from backendai.domain.planning.amounts.allowances import holder_limits, in_order
from backendai.portal.web.dashboard.gauges import Gauge


def gauges_of(holder: User | Project) -> list[Gauge]:
    """Return a bar for the sessions, and for each slot that is limited or held; two queries."""
    scope = USER if isinstance(holder, User) else PROJECT
    limited = Limited(key_of(scope, holder.pk), scope, str(holder), holder.policy or ResourcePolicy(name="none"))
    [view] = limit_views([limited]).values()
    found = holder_limits(view, in_order({*view.slots, *view.used}))
    return [Gauge("", found.sessions), *(Gauge(slot, one) for slot, one in found.slots.items())]
