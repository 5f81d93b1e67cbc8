"""A kind of job needs a class on each side, and nothing else: the way between is the same for all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from django.db.models import QuerySet
from pydantic import BaseModel

from backendai.agent.backends.base import Fetched
from backendai.agent.jobs.handlers import JobHandler, JobProgress, Outcome
from backendai.agent.jobs.kinds import JOB_HANDLERS
from backendai.base.core.errors import NotFound
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from backendai.domain.catalog.models import ImageOnAgent
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import kind_named, orders_of, register, unregister
from tests.agent.memory_backend import MemoryBackend
from tests.agent.next_door import NextDoor
from tests.catalog.test_pulls import Machine
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


class Line(BaseModel):
    """Work of the kind that only this test knows."""

    text: str


class Writing(JobHandler):
    """The agent's side."""

    kind, work = "test.write", Line

    def run(self, work: Line, progress: JobProgress) -> Outcome:
        progress.heed(Fetched(0.5, "half of it"))
        return Outcome("written", {"length": len(work.text)})


class WritingKind:
    """The portal's side: an image with this digest stands for a line that its agent should write."""

    name = "test.write"

    def wanted(self) -> QuerySet[ImageOnAgent]:
        return ImageOnAgent.objects.filter(digest="write")

    def spec(self, agent: Agent, job_id: UUID) -> NodeJobSpec:
        row = self.wanted().filter(agent=agent, pk=job_id.int).first()
        if row is None:
            raise NotFound("Nothing should be written here.")
        return NodeJobSpec(kind=self.name, job_id=job_id, work={"text": row.reference})

    def heard(self, agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
        rows = ImageOnAgent.objects.filter(agent=agent, pk=report.job_id.int)
        if report.state == JobState.DONE:
            rows.update(digest="", size_bytes=report.result["length"])
        return rows.exists()

    def follow(self, now: datetime) -> int:
        return 0


def want(agent: Agent) -> UUID:
    return UUID(int=ImageOnAgent.objects.create(agent=agent, reference="hello", digest="write").pk)


@pytest.fixture(autouse=True)
def kind() -> Iterator[WritingKind]:
    kind = WritingKind()
    register(kind)
    yield kind
    unregister(kind.name)


def test_a_new_kind_reaches_its_agent_is_done_there_and_comes_back() -> None:
    agent, other = make_agent("writes"), make_agent("idle")
    want(agent)
    door = NextDoor(agent, MemoryBackend(), handlers=[Writing])
    assert orders_of([other.pk]) == {}
    assert door.work() == 1
    assert [(one.state, one.message) for one in door.said] == [("RUNNING", "The agent begins."), ("DONE", "written")]
    assert (ImageOnAgent.objects.get(agent=agent).size_bytes, door.work()) == (5, 0)


def test_it_goes_over_the_node_api_as_well(django_assert_num_queries: Any) -> None:
    machine, stranger = Machine("writes"), Machine("stranger")
    key = want(machine.agent)
    answer = machine.ask("GET", f"/jobs/test.write/{key}")
    assert (answer.json()["work"], answer["Cache-Control"]) == ({"text": "hello"}, "no-store")
    assert stranger.ask("GET", f"/jobs/test.write/{key}").status_code == 404
    report = NodeJobReport(kind="test.write", job_id=key, state=JobState.DONE, result={"length": 5})
    body = report.model_dump_json()
    assert machine.ask("POST", f"/jobs/image.pull/{key}/report", body).status_code == 400
    assert stranger.ask("POST", f"/jobs/test.write/{key}/report", body).json() == {"wanted": False}
    assert machine.ask("POST", f"/jobs/test.write/{key}/report", body).json() == {"wanted": True}
    with django_assert_num_queries(1):
        assert orders_of([machine.agent.pk, stranger.agent.pk]) == {}


def test_a_kind_that_nobody_registered_is_refused() -> None:
    with pytest.raises(NotFound, match=r"does not support jobs of the kind folder\.clone"):
        kind_named("folder.clone")


def test_the_portal_knows_the_kind_of_every_handler() -> None:
    names = {handler.kind for handler in JOB_HANDLERS}
    assert len(names) == len(JOB_HANDLERS)
    assert all(kind_named(name).name == name for name in names)
