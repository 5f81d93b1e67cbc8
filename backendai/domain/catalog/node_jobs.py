"""The jobs of agents about images: ``image.pull`` and ``image.delete``."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backendai.base.core.errors import NotFound
from backendai.base.wire.images import DELETE, PULL, DeleteWork
from backendai.base.wire.node_jobs import NodeJobReport, NodeJobSpec
from backendai.domain.catalog.models import ImageOnAgent, ImagePull
from backendai.domain.catalog.pulls import follow_pulls, pull_heard, pull_spec, pulls_wanted
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import register


class PullKind:
    """Jobs that pull images to agents before a session needs them."""

    name = PULL

    def wanted(self) -> QuerySet[ImagePull]:
        return pulls_wanted()

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        return pull_spec(agent, job_id)

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        return pull_heard(agent, report, now=now)

    def follow(self, now: datetime) -> int:
        return follow_pulls(now)


class DeleteKind:
    """Jobs that delete unneeded images of sessions from agents. A job ends when the agent no longer lists the image."""

    name = DELETE

    def wanted(self) -> QuerySet[ImageOnAgent]:
        return ImageOnAgent.objects.filter(is_unwanted=True)

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        row = self.wanted().filter(agent=agent, pk=_key(job_id)).first()
        if row is None:
            raise NotFound("This image should not be deleted on this agent.")
        work: dict[str, Any] = DeleteWork(reference=row.reference).model_dump()
        return NodeJobSpec(kind=DELETE, job_id=job_id, work=work)

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        return True

    def follow(self, now: datetime) -> int:
        return 0


def _key(job_id: UUID) -> int:
    """Return the row's key for a job id; 0, which no row has, for a foreign id."""
    return job_id.int if job_id.int < 2**63 else 0


register(PullKind())
register(DeleteKind())
