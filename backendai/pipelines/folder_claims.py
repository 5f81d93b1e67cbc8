"""Runs that need a folder for elements that have not been launched yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import Exists, OuterRef

from backendai.compute.services.mounts import is_meant
from backendai.core.messages import Message
from backendai.pipelines.models import State, Step, Task
from backendai.storage.claims import register_claims
from backendai.storage.models import Folder


@register_claims
def runs_with(folder: Folder) -> Iterator[Message]:
    """Yield the runs of which a step with waiting elements mounts the folder."""
    waiting = Task.objects.filter(step=OuterRef("pk"), state=State.WAITING)
    rows = Step.objects.filter(Exists(waiting), run__ended_at=None).select_related("run__owner", "run__project")
    told = set()
    for step in rows.order_by("run__created_at", "run", "place").iterator():
        run = step.run
        if run.pk in told:
            continue
        if any(is_meant(folder, name, run.owner, run.project) for name in _named_in(step.request)):
            told.add(run.pk)
            yield Message("the run {run} of {owner}", run=run.name, owner=run.owner.email)


def _named_in(request: Mapping[str, Any]) -> set[str]:
    parts = [request, *(request.get("roles") or {}).values()]
    return {str(mount.get("folder", "")) for part in parts for mount in part.get("mounts") or ()}
