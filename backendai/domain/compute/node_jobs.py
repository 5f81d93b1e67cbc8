"""The job kind ``image.commit``: agents save running sessions as images."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from backendai.base.wire.images import COMMIT
from backendai.base.wire.node_jobs import NodeJobReport, NodeJobSpec
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import register
from backendai.domain.compute.models import ImageCommit
from backendai.domain.compute.services.images.commit_reports import commit_reported, commit_spec, commits_wanted
from backendai.domain.compute.services.images.commits import follow_commits


class CommitKind:
    """Saves a running session as an image."""

    name = COMMIT

    def wanted(self) -> QuerySet[ImageCommit]:
        return commits_wanted()

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        return commit_spec(agent, job_id)

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        return commit_reported(agent, report, now=now)

    def follow(self, now: datetime) -> int:
        return follow_commits(now)


register(CommitKind())
