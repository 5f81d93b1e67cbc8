"""Runs that need a folder for elements that have not been launched yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import Exists, OuterRef

from backendai.base.core.messages import Message
from backendai.domain.compute.services.requests.mounts import annotate_by_name, refers_to_folder
from backendai.domain.pipelines.models import State, Step, Task
from backendai.domain.storage.claims import register_claims
from backendai.domain.storage.models import Folder


@register_claims
def runs_with(folder: Folder) -> Iterator[Message]:
    """Yield the runs of which a step with waiting elements mounts the folder; one query."""
    waiting = Task.objects.filter(step=OuterRef("pk"), state=State.WAITING)
    rows = Step.objects.filter(Exists(waiting), run__ended_at=None).select_related("run__owner")
    offered = annotate_by_name(rows, folder, owner="run__owner", project="run__project")
    told = set()
    for step in offered.order_by("run__created_at", "run", "place").iterator():
        run = step.run
        if run.pk not in told and refers_to_folder(folder, _named_in(step.request), by_name=step.by_name):
            told.add(run.pk)
            yield Message("the run {run} of {owner}", run=run.name, owner=run.owner.email)


def _named_in(request: Mapping[str, Any]) -> set[str]:
    parts = [request, *(request.get("roles") or {}).values()]
    return {str(mount.get("folder", "")) for part in parts for mount in part.get("mounts") or ()}
