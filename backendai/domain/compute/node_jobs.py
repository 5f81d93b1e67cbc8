"""The kinds of jobs about sessions: agents save them as images, and store their homes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from backendai.base.wire.homes import STORE
from backendai.base.wire.images import COMMIT
from backendai.base.wire.node_jobs import NodeJobReport, NodeJobSpec
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import register
from backendai.domain.compute.models import HomeStore, ImageCommit
from backendai.domain.compute.services.images.commit_reports import commit_reported, commit_spec, commits_wanted
from backendai.domain.compute.services.images.commits import follow_commits
from backendai.domain.compute.services.life.stopping import follow_stores, store_reported, store_spec, stores_wanted


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


class StoreKind:
    """Stores the home of a session that stops."""

    name = STORE

    def wanted(self) -> QuerySet[HomeStore]:
        return stores_wanted()

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        return store_spec(agent, job_id)

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        return store_reported(agent, report, now=now)

    def follow(self, now: datetime) -> int:
        return follow_stores(now)


register(CommitKind())
register(StoreKind())
