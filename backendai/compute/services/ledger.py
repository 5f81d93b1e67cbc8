"""The ledger of slots: what each placed kernel holds on its agent. "Used" is a sum, there is no counter to drift."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Sum

from backendai.compute.models import Allocation
from backendai.core.slots import Slots


@dataclass(frozen=True, slots=True)
class Claim:
    """A kernel takes these amounts on this agent."""

    kernel_id: UUID
    agent_id: UUID
    slots: Slots


def occupied_by_agent(agent_ids: Collection[UUID] | None = None) -> dict[UUID, Slots]:
    """Return what is taken on each agent (on all when none are named), in one query."""
    rows = Allocation.objects.all() if agent_ids is None else Allocation.objects.filter(agent__in=agent_ids)
    sums: dict[UUID, dict[str, int]] = defaultdict(dict)
    for agent_id, slot, total in rows.values_list("agent_id", "slot").annotate(total=Sum("amount")).order_by():
        sums[agent_id][slot] = total
    return {agent_id: Slots(amounts) for agent_id, amounts in sums.items()}


def allocate(claims: Iterable[Claim]) -> None:
    """Write the rows of these claims, in the caller's transaction."""
    Allocation.objects.bulk_create(
        Allocation(kernel_id=claim.kernel_id, agent_id=claim.agent_id, slot=slot, amount=amount)
        for claim in claims
        for slot, amount in claim.slots.items()
    )


def free(kernel_ids: Collection[UUID]) -> None:
    """Remove the rows of these kernels, in the caller's transaction."""
    if kernel_ids:
        Allocation.objects.filter(kernel__in=kernel_ids).delete()
