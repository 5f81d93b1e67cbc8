"""Putting images on agents: one job, a row for each agent, and an account that goes to nobody else."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.images import PULL, PullWork
from backendai.base.wire.messages import JoinUp, SyncDown, SyncUp
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog.models import Image, ImagePull, Registry
from backendai.domain.catalog.pulls import follow_pulls, pull_heard, pulls_of, start_pull
from backendai.domain.catalog.registries import write_registry
from backendai.domain.cluster.agents import revoke_credential
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent
from backendai.portal.loops.repair.rounds import repair
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session, place

pytestmark = pytest.mark.django_db
SECRET = "correct horse"
CAPABILITIES = [f"job.{PULL}"]


class Machine:
    """A node with a token of its own."""

    def __init__(self, name: str, **over: Any) -> None:
        self.agent, self.token = join_agent(
            JoinUp(token=create_join_token(make_group()), name=name, gateway_url="http://127.0.0.1:1")
        )
        values = {"status": "ALIVE", "backend": "docker", "architecture": "x86_64", "last_seen_at": timezone.now()}
        Agent.objects.filter(pk=self.agent.pk).update(**(values | over))
        self.agent.refresh_from_db()

    def ask(self, method: str, path: str, body: str | None = None) -> Any:
        headers = {"Authorization": f"Node {self.token}"}
        data = body.encode() if body is not None else b""
        return Client(headers=headers).generic(method, f"/node/v1{path}", data, content_type="application/json")

    def orders(self, capabilities: list[str] | None = CAPABILITIES) -> list[UUID]:
        up = SyncUp(
            boot_id="b",
            version="1",
            backend="docker",
            architecture="x86_64",
            gateway_url="",
            capacity={"cpu": "4"},
            capabilities=capabilities,
        )
        answer = SyncDown.model_validate_json(self.ask("POST", "/sync", up.model_dump_json()).content)
        return [order.job_id for order in answer.jobs]

    def tell(self, pull_id: UUID, state: JobState, **over: Any) -> bool:
        report = NodeJobReport(kind=PULL, job_id=pull_id, state=state, **over)
        answer = self.ask("POST", f"/jobs/{PULL}/{pull_id}/report", report.model_dump_json())
        assert answer.status_code == 200
        return bool(json.loads(answer.content)["wanted"])


@pytest.fixture
def image() -> Image:
    write_registry(None, Registry(), {"name": "other", "url": "http://other.example", "username": "other"})
    values = {"name": "lab", "url": "http://cr.example:5000", "username": "robot", "password": SECRET}
    registry = write_registry(None, Registry(), values)
    return make_image("torch", reference="cr.example:5000/lab/torch:2", registry=registry, digest="sha256:" + "b" * 64)


def begin(cast: Cast, image: Image, *machines: Machine, now: datetime | None = None) -> BackgroundJob:
    agents = [machine.agent for machine in machines]
    return start_pull(cast.dana, image, agents=agents, groups=[], now=now or timezone.now())


def test_a_pull_goes_its_whole_way_and_the_account_reaches_its_nodes_alone(
    cast: Cast, image: Image, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    one, two, foreign = Machine("one"), Machine("two"), Machine("three", status="LOST")
    Machine("four", backend="process"), Machine("five", architecture="aarch64")
    Image.objects.filter(pk=image.pk).update(architecture="x86_64")
    image.refresh_from_db()
    job = start_pull(cast.dana, image, agents=[], groups=[make_group()], now=timezone.now())
    assert (job.total, job.owner_id, foreign.orders()) == (2, cast.dana.pk, [])
    (first,), (second,) = one.orders(), two.orders()

    answer = one.ask("GET", f"/jobs/{PULL}/{first}")
    job_spec = NodeJobSpec.model_validate_json(answer.content)
    spec = PullWork.model_validate(job_spec.work)
    assert (spec.exact_image, spec.access.username) == (f"cr.example:5000/lab/torch@{image.digest}", "robot")
    assert (spec.access.password, answer["Cache-Control"]) == (SECRET, "no-store")
    assert SECRET not in repr(spec) + repr(job_spec)
    assert foreign.ask("GET", f"/jobs/{PULL}/{first}").status_code == 404
    assert not foreign.tell(first, JobState.DONE)

    assert one.tell(first, JobState.RUNNING, message="5 of 10 MiB", progress=0.5)
    job.refresh_from_db()
    assert (job.done, job.share, job.message) == (0, 0.25, "0 of 2 agents are done.")
    assert one.tell(first, JobState.DONE, message="It has come.")
    assert two.tell(second, JobState.FAILED, message="no space left on device")
    job.refresh_from_db()
    assert (job.status, job.message) == ("FAILED", "1 of 2 agents have it. It failed on two.")
    assert [(part["name"], part["ok"], part["message"]) for part in job.result["parts"]] == [
        ("one", True, "It has come."), ("two", False, "no space left on device"),
    ]  # fmt: skip
    assert (one.orders(), one.ask("GET", f"/jobs/{PULL}/{first}").status_code) == ([], 404)
    assert not one.tell(first, JobState.RUNNING)
    written = json.dumps(list(AuditEntry.objects.values("action", "details"))) + caplog.text + everything_stored()
    assert AuditEntry.objects.filter(action="image.pull", actor=cast.dana).count() == 1
    assert SECRET not in written


def everything_stored() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, url, username, sealed_password FROM catalog_registry")
        rows = str(cursor.fetchall())
    return rows + str(list(BackgroundJob.objects.values())) + str(list(ImagePull.objects.values()))


def test_what_cannot_be_pulled_is_refused_with_the_reason_and_nothing_begins(cast: Cast, image: Image) -> None:
    here, lost, native = Machine("here"), Machine("lost", status="LOST"), Machine("native", backend="process")
    other, full = Machine("other", architecture="aarch64"), Machine("full", low_disk=True)
    Image.objects.filter(pk=image.pk).update(architecture="x86_64")
    image.refresh_from_db()
    for machine, words in (
        (lost, "is not reachable"),
        (native, "no container engine"),
        (other, "is aarch64"),
        (full, "disk space"),
    ):
        with pytest.raises(UserError, match=words):
            begin(cast, image, here, machine)
    with pytest.raises(UserError, match="None of the selected agents"):
        begin(cast, image)
    with pytest.raises(UserError, match="built on the agents"):
        begin(cast, make_image("home", is_built_here=True), here)
    assert not BackgroundJob.objects.exists()
    begin(cast, image, here)
    with pytest.raises(Conflict, match="is already running"):
        begin(cast, image, here)
    assert ImagePull.objects.count() == 1


def test_a_cancelled_pull_ends_at_the_next_word_and_where_nothing_has_started_at_once(cast: Cast, image: Image) -> None:
    one, two = Machine("one"), Machine("two")
    job = begin(cast, image, one, two)
    (first,) = one.orders()
    one.tell(first, JobState.RUNNING, progress=0.1)
    cancel_job(cast.dana, job.pk, now=timezone.now())
    assert (two.orders(), one.orders()) == ([], [])
    assert follow_pulls(timezone.now()) == 1
    job.refresh_from_db()
    assert job.is_cancelling, "one agent is still at it"
    assert not one.tell(first, JobState.RUNNING, progress=0.2)
    job.refresh_from_db()
    assert (job.status, job.message) == ("CANCELLED", "Stopped: 0 of 2 agents have it.")
    again = begin(cast, image, one)
    one.tell(one.orders()[0], JobState.RUNNING)
    cancel_job(cast.dana, again.pk, now=timezone.now())
    assert follow_pulls(timezone.now() + timedelta(seconds=31)) == 1, "it never spoke again"
    again.refresh_from_db()
    assert again.status == "CANCELLED"


def test_a_lost_agent_fails_its_part_the_job_says_so_and_ends(cast: Cast, image: Image) -> None:
    one, two, three = Machine("one"), Machine("two"), Machine("three")
    job = begin(cast, image, one, two, three)
    assert one.tell(one.orders()[0], JobState.DONE)
    (late,) = two.orders()
    two.tell(late, JobState.RUNNING, progress=0.4)
    Agent.objects.filter(pk=two.agent.pk).update(status="LOST", lost_at=timezone.now())
    revoke_credential(cast.dana, three.agent, now=timezone.now())
    Agent.objects.filter(pk=three.agent.pk).update(status="LOST", lost_at=timezone.now())
    repair(timezone.now())
    job.refresh_from_db()
    assert (job.status, job.message) == ("FAILED", "1 of 3 agents have it. It failed on three, two.")
    assert {part["message"] for part in job.result["parts"] if not part["ok"]} == {"The agent was lost meanwhile."}
    Agent.objects.filter(pk=two.agent.pk).update(status="ALIVE")
    assert not two.tell(late, JobState.DONE), "a late report changes nothing"


def test_time_runs_out_and_a_forgotten_image_ends_it_too(cast: Cast, image: Image) -> None:
    one = Machine("one")
    now = timezone.now()
    job = begin(cast, image, one, now=now - timedelta(hours=2))
    repair(now)
    job.refresh_from_db()
    assert (job.status, job.result["parts"][0]["message"]) == ("FAILED", "It was not even started after 2 h.")
    job = begin(cast, image, one)
    image.delete()
    repair(timezone.now())
    job.refresh_from_db()
    assert (job.status, job.message) == ("FAILED", "The image was removed from the catalogue.")


def test_a_word_about_one_of_many_pulls_costs_a_fixed_number_of_statements(
    cast: Cast, image: Image, django_assert_max_num_queries: Any
) -> None:
    agents = [make_agent() for _ in range(30)]
    job = start_pull(cast.dana, image, agents=agents, groups=[], now=timezone.now())
    pulls = list(ImagePull.objects.filter(job=job).select_related("agent"))
    for state in (JobState.RUNNING, JobState.DONE):
        for pull in pulls:
            report = NodeJobReport(kind=PULL, job_id=pull.pk, state=state, progress=0.5)
            with django_assert_max_num_queries(14):
                assert pull_heard(pull.agent, report, now=timezone.now())
    job.refresh_from_db()
    assert (job.status, job.message, job.done) == ("DONE", "30 of 30 agents have it.", 30)
    with django_assert_max_num_queries(2):
        assert len(pulls_of(image)[1]) == 30


def test_an_agent_of_an_earlier_version_is_asked_for_an_update(cast: Cast, image: Image) -> None:
    one = Machine("one")
    job = begin(cast, image, one)
    (order,) = one.orders(capabilities=None)
    assert follow_pulls(timezone.now()) == 1, "its sync named no capability: it is older than these jobs"
    job.refresh_from_db()
    assert job.status == "FAILED" and "Update it" in job.result["parts"][0]["message"]
    assert not one.tell(order, JobState.RUNNING)
    one.agent.refresh_from_db()
    with pytest.raises(UserError, match="earlier version of the platform; update it"):
        begin(cast, image, one)


def test_a_start_gets_the_account_of_its_registry_while_it_pulls_and_nobody_else_does(cast: Cast, image: Image) -> None:
    one, two = Machine("one", capacity={"cpu": "4", "mem": str(2**33)}), Machine("two")
    session = make_session(cast.alice, image="torch")
    place(session, one.agent)
    kernel = session.kernels.get()
    answer = one.ask("GET", f"/kernels/{kernel.pk}/registry")
    assert (answer.json(), answer["Cache-Control"]) == ({"username": "robot", "password": SECRET}, "no-store")
    assert SECRET not in one.ask("GET", f"/kernels/{kernel.pk}").content.decode()
    assert two.ask("GET", f"/kernels/{kernel.pk}/registry").status_code == 404
    Image.objects.update(reference="elsewhere.example/lab/torch:2")  # its registry's account is for its own host only
    assert one.ask("GET", f"/kernels/{kernel.pk}/registry").json() == {"username": "", "password": ""}
    kernel.status = "RUNNING"
    kernel.save()
    assert one.ask("GET", f"/kernels/{kernel.pk}/registry").status_code == 404
