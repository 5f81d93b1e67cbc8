"""What nodes should do about images: fetch them, make them of kernels, remove them. One query for all three."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import CharField, Value
from django.db.models.functions import Cast

from backendai.catalog.models import ImageOnAgent
from backendai.catalog.pulls import pulls_wanted
from backendai.compute.services.commit_reports import commits_wanted
from backendai.wire.commits import CommitOrder
from backendai.wire.pulls import PullOrder

_PULL, _COMMIT, _DROP = "pull", "commit", "drop"


@dataclass(frozen=True, slots=True)
class Chores:
    """What one node should do about images."""

    pulls: list[PullOrder] = field(default_factory=list)
    commits: list[CommitOrder] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)


NOTHING = Chores()


def chores_of(agent_ids: Collection[UUID]) -> dict[UUID, Chores]:
    """Return what these agents should do, by agent; one query."""
    parts = [
        rows.filter(agent__in=agent_ids)
        .order_by()
        .values_list("agent_id", Value(kind, output_field=CharField()), Cast(what, CharField()))
        for kind, rows, what in (
            (_PULL, pulls_wanted(), "pk"),
            (_COMMIT, commits_wanted(), "pk"),
            (_DROP, ImageOnAgent.objects.filter(is_unwanted=True), "reference"),
        )
    ]
    chores = defaultdict[UUID, Chores](Chores)
    for agent_id, kind, what in parts[0].union(*parts[1:], all=True):
        if kind == _PULL:
            chores[agent_id].pulls.append(PullOrder(pull_id=UUID(what)))
        elif kind == _COMMIT:
            chores[agent_id].commits.append(CommitOrder(commit_id=UUID(what)))
        else:
            chores[agent_id].drops.append(what)
    return chores
