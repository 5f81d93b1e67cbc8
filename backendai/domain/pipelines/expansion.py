"""Requests of tries that ask for more than the one before them, as far as a launch allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.services.requests.check import Checked, check_spec
from backendai.domain.compute.spec import SessionSpec


def grown_request(
    owner: User, spec: SessionSpec, more: Mapping[str, float], growths: int
) -> tuple[SessionSpec, Checked]:
    """Return the request with its amounts grown so many times, and its check. An amount grows to that of the largest
    agent of the group at most, and no further than limits and images allow. Raises a UserError for what would be
    refused without growing."""
    checked = check_spec(owner, spec)
    if not more or not growths:
        return spec, checked
    largest = _largest_in(checked.group)
    for number in range(growths, 0, -1):
        grown = replace(spec, resources=_grown(spec.resources, more, number, largest))
        try:
            return grown, check_spec(owner, grown)
        except UserError as error:
            if not (error.field or "").startswith("resources"):
                raise
    return spec, checked


def _grown(
    asked: Mapping[str, object], more: Mapping[str, float], number: int, largest: Mapping[str, int]
) -> dict[str, object]:
    amounts = Slots.parse(asked)
    grown = {}
    for slot, factor in more.items():
        amount = amounts[slot]
        wanted = int(min(amount * factor**number, float(2**62)))
        grown[slot] = max(amount, min(wanted, largest.get(slot, wanted)))
    return {**asked, **Slots(grown).to_json()}


def _largest_in(group: ResourceGroup) -> dict[str, int]:
    """Return by slot the largest capacity of an agent of the group; empty without agents. One query."""
    largest: dict[str, int] = {}
    rows = Agent.objects.registered().filter(resource_group=group).exclude(capacity={})
    for capacity in rows.order_by().values_list("capacity", flat=True):
        for slot, amount in Slots.parse(capacity).items():
            largest[slot] = max(amount, largest.get(slot, 0))
    return largest
