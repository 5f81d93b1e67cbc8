"""Images that people make of their sessions: who may, how many, what becomes of them, and who sees them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotAllowed, NotFound, UserError
from backendai.base.core.slots import Slots
from backendai.base.wire.images import COMMIT, DELETE, DEPLOYMENT_LABEL, NAME_LABEL, OWNER_LABEL, PUSHING, CommitSpec
from backendai.base.wire.messages import ImageSighting
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog.images import adopt_from_agents
from backendai.domain.catalog.models import Image, ImageOnAgent, Registry
from backendai.domain.catalog.pulls import start_pull
from backendai.domain.catalog.registries import write_registry
from backendai.domain.catalog.registry_access import access_for, client_of
from backendai.domain.catalog.services import record_images
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import kind_named, orders_of
from backendai.domain.compute.models import ComputeSession, ImageCommit, SchedulingRecord
from backendai.domain.compute.services.images.commit_reports import commit_reported, commit_spec, mark_unwanted
from backendai.domain.compute.services.images.commits import follow_commits, start_commit
from backendai.domain.compute.services.images.own_images import delete_own_image, own_images, rename_own_image
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.ending_many import terminate_sessions
from backendai.domain.compute.spec import RoleSpec, SessionSpec
from backendai.domain.compute.status import Status
from backendai.portal.loops.group_pass import schedule
from tests.cast import Cast
from tests.catalog.test_pulls import Machine
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session, place

pytestmark = pytest.mark.django_db


class Asked(CommitSpec):
    """What an agent is asked to make."""

    commit_id: UUID


class Saved:
    """A running session of Alice's on an agent of its own, and what its node says."""

    def __init__(self, cast: Cast, **over: Any) -> None:
        self.agent = make_agent(**over.pop("agent", {}))
        self.session = make_running_session(cast.alice, self.agent, **over)
        self.owner = cast.alice

    def begin(self, name: str = "mine") -> BackgroundJob:
        return start_commit(self.owner, self.session, name, now=timezone.now())

    def spec(self) -> Asked:
        (order,) = orders_of([self.agent.pk])[self.agent.pk]
        assert order.kind == COMMIT
        spec = commit_spec(self.agent, order.job_id)
        return Asked.model_validate({"commit_id": spec.job_id, **spec.work})

    def tell(self, commit_id: UUID, state: JobState, **over: Any) -> bool:
        about = {name: over.pop(name) for name in ("message", "progress", "phase") if name in over}
        report = NodeJobReport(kind=COMMIT, job_id=commit_id, state=state, result=over, **about)
        return commit_reported(self.agent, report, now=timezone.now())

    def unwanted(self) -> list[str]:
        """What its agent should delete, as it would hear it."""
        orders = [one for one in orders_of([self.agent.pk]).get(self.agent.pk, []) if one.kind == DELETE]
        return [str(kind_named(DELETE).spec(self.agent, one.job_id).work["reference"]) for one in orders]

    def make(self, name: str = "mine", **over: Any) -> Image:
        self.begin(name)
        spec = self.spec()
        assert self.tell(spec.commit_id, JobState.DONE, size_bytes=5 * 2**20, **over)
        self.see(spec)
        return Image.objects.get(pk=spec.commit_id)

    def see(self, *specs: CommitSpec) -> None:
        sightings = [ImageSighting(reference=one.reference, labels=one.labels) for one in specs]
        record_images(self.agent, sightings, "now")


def launch(owner: Any, image: str, **more: Any) -> ComputeSession:
    return create_session(owner, SessionSpec(image=image, resources={"cpu": 1, "mem": "512m"}, **more))


def test_a_session_becomes_an_image_that_its_owner_alone_can_start_from(cast: Cast) -> None:
    make_image("python", labels={"ai.backend.kernelspec": "1"}, architecture="x86_64", services="ring:tcp:9000")
    saved = Saved(cast)
    job = saved.begin("my-tools")
    assert (job.owner_id, job.kind, job.is_running) == (cast.alice.pk, "image.commit", True)
    assert orders_of([make_agent().pk]) == {}
    spec = saved.spec()
    kernel = saved.session.kernels.get()
    assert (spec.kernel_id, spec.generation, spec.push, spec.access.username) == (
        kernel.pk,
        kernel.generation,
        False,
        "",
    )
    assert spec.reference == f"local/python:latest-customized_{spec.commit_id.hex[:12]}"
    assert spec.labels[OWNER_LABEL] == f"user:{cast.alice.pk}" and spec.labels[NAME_LABEL] == "my-tools"
    assert not Image.objects.filter(is_customized=True).exists(), "nothing is to be seen before it is there"

    assert saved.tell(spec.commit_id, JobState.RUNNING, message="The session is being saved.")
    job.refresh_from_db()
    assert job.message == "The session is being saved."
    assert saved.tell(spec.commit_id, JobState.DONE, size_bytes=5 * 2**20)
    assert saved.tell(spec.commit_id, JobState.DONE, size_bytes=5 * 2**20), "a word said twice"
    job.refresh_from_db()
    image = Image.objects.get(is_customized=True)
    assert (job.status, job.result["image"]) == ("DONE", str(image.pk))
    assert "my-tools has 5 MiB." in job.message
    assert (image.owner, image.title, image.services, image.architecture) == (
        cast.alice, "my-tools", "ring:tcp:9000", "x86_64",
    )  # fmt: skip
    assert image.labels["ai.backend.kernelspec"] == "1" and image.digest == ""
    assert AuditEntry.objects.filter(action="image.commit", actor=cast.alice).count() == 1
    assert orders_of([saved.agent.pk]) == {}

    for stranger in (cast.bob, cast.charlie):
        assert image not in Image.objects.visible_to(stranger)
        with pytest.raises(UserError, match=r"Image .* not found"):
            launch(stranger, image.name)
        with pytest.raises(UserError, match=r"Image .* not found"):
            launch(stranger, image.reference)
    assert image in Image.objects.visible_to(cast.dana)
    assert launch(cast.alice, image.name).image == image


def test_who_what_and_when_cannot_be_saved_is_refused_with_the_reason(cast: Cast) -> None:
    saved = Saved(cast)
    now = timezone.now()
    for name, words in (
        ("abc", "at least 4"),
        ("x" * 33, r"at most 32 characters \(33"),
        ("a b c", "A space"),
        ("a.b.c", "'.'"),
    ):
        with pytest.raises(UserError, match=words) as refused:
            saved.begin(name)
        assert refused.value.field == "name"
    with pytest.raises(NotAllowed):
        start_commit(cast.dana, saved.session, "theirs", now=now)
    with pytest.raises(Conflict, match="a running session"):
        start_commit(cast.alice, make_session(cast.alice), "waiting", now=now)
    batch = Saved(cast, session_type="batch", startup_command="true")
    with pytest.raises(Conflict, match="interactive"):
        batch.begin()
    for over, words in (
        ({"backend": "process"}, "no container engine"),
        ({"status": "LOST"}, "is not reachable"),
        ({"low_disk": True}, "short of disk"),
    ):
        Agent.objects.filter(pk=saved.agent.pk).update(**over)
        with pytest.raises(Conflict, match=words):
            saved.begin()
        Agent.objects.filter(pk=saved.agent.pk).update(backend="docker", status="ALIVE", low_disk=False)
    assert not ImageCommit.objects.exists() and not BackgroundJob.objects.exists()
    saved.begin()
    with pytest.raises(Conflict, match="is being created from this session"):
        saved.begin("other")
    with pytest.raises(Conflict, match="an image named mine already"):
        Saved(cast).begin("mine")


def test_nobody_keeps_more_than_the_policy_allows_and_what_is_under_way_counts(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="two", max_customized_images=2)
    cast.alice.save()
    one = Saved(cast).make("first")
    Saved(cast).begin("second")
    with pytest.raises(Conflict, match="You have 2 images of your own, and may have at most 2") as refused:
        Saved(cast).begin("third")
    assert refused.value.details["limit"] == 2
    delete_own_image(cast.alice, one, now=timezone.now())
    Saved(cast).begin("third")


def test_a_session_that_is_being_saved_is_ended_by_force_only(cast: Cast) -> None:
    saved, other = Saved(cast), Saved(cast)
    saved.begin()
    with pytest.raises(Conflict, match="mine is being created from this session"):
        terminate_session(saved.session, cast.alice)
    done = terminate_sessions(cast.alice, [saved.session.pk, other.session.pk], now=timezone.now())
    assert [(one.id, one.code) for one in done.refused] == [(saved.session.pk, "being-saved")]
    terminate_session(saved.session, cast.alice, force=True)
    assert follow_commits(timezone.now()) == 1
    commit = ImageCommit.objects.get()
    assert (commit.status, commit.message) == ("FAILED", "The session ended before the image was created.")
    assert commit.job is not None and commit.job.status == "FAILED"


def test_what_is_given_up_half_way_leaves_the_node_and_the_name_is_free(cast: Cast) -> None:
    saved = Saved(cast)
    job = saved.begin()
    spec = saved.spec()
    saved.tell(spec.commit_id, JobState.RUNNING)
    cancel_job(cast.alice, job.pk, now=timezone.now())
    assert orders_of([saved.agent.pk]) == {}
    with pytest.raises(NotFound):
        commit_spec(saved.agent, spec.commit_id)
    assert not saved.tell(spec.commit_id, JobState.DONE, size_bytes=1)
    job.refresh_from_db()
    assert (job.status, Image.objects.filter(is_customized=True).exists()) == ("CANCELLED", False)
    saved.see(spec)  # the node made it meanwhile, and could not remove it
    unknown = ImageOnAgent.objects.create(agent=saved.agent, reference="a:b", labels=spec.labels)
    assert (mark_unwanted(timezone.now()), mark_unwanted(timezone.now())) == (1, 0)
    assert saved.unwanted() == [spec.reference]
    unknown.refresh_from_db()
    assert not unknown.is_unwanted, "what the portal has never heard of stays"
    saved.see()
    assert orders_of([saved.agent.pk]) == {}
    saved.begin()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"status": "LOST"}, "lost meanwhile"), ({}, "time limit was exceeded")],
)
def test_a_node_that_is_lost_or_too_slow_ends_it_with_the_reason(
    cast: Cast, change: dict[str, Any], words: str
) -> None:
    saved = Saved(cast)
    job = saved.begin()
    saved.tell(saved.spec().commit_id, JobState.RUNNING)
    Agent.objects.filter(pk=saved.agent.pk).update(**change)
    assert follow_commits(timezone.now() + (timedelta() if change else timedelta(hours=1))) == 1
    job.refresh_from_db()
    assert job.status == "FAILED" and words in job.message


def test_a_failure_on_the_node_is_told_and_another_nodes_word_counts_for_nothing(cast: Cast) -> None:
    saved = Saved(cast)
    job = saved.begin()
    commit_id = saved.spec().commit_id
    stranger = make_agent()
    with pytest.raises(NotFound):
        commit_spec(stranger, commit_id)
    report = NodeJobReport(kind=COMMIT, job_id=commit_id, state=JobState.DONE, result={"size_bytes": 1})
    assert not commit_reported(stranger, report, now=timezone.now())
    assert not Image.objects.filter(is_customized=True).exists()
    saved.tell(commit_id, JobState.FAILED, message="The session wrote 20 GiB outside its home folder.")
    job.refresh_from_db()
    assert (job.status, job.message) == ("FAILED", "The session wrote 20 GiB outside its home folder.")


def test_it_starts_only_where_it_lies_and_waits_with_a_plain_reason_elsewhere(cast: Cast) -> None:
    saved = Saved(cast)
    image = saved.make()
    empty, process = make_agent(cpu=64), make_agent(cpu=64, backend="process")
    session = launch(cast.alice, image.name)
    schedule(make_group(), timezone.now())
    session.refresh_from_db()
    assert session.kernels.get().agent == saved.agent not in (empty, process)
    Agent.objects.filter(pk=saved.agent.pk).update(schedulable=False)
    other = launch(cast.alice, image.name)
    schedule(make_group(), timezone.now())
    other.refresh_from_db()
    assert other.status == Status.PENDING
    record = SchedulingRecord.objects.filter(session=other).latest("id")
    assert f"Agent {empty.name} does not have image" in record.message
    assert f"Agent {process.name} has no containers" in record.message
    saved.see()
    other = launch(cast.alice, image.name)
    schedule(make_group(), timezone.now())
    record = SchedulingRecord.objects.filter(session=other).latest("id")
    assert f"do not have image {image.reference}, and it cannot be pulled" in record.message
    with pytest.raises(UserError, match="is on its agent only"):
        start_pull(cast.dana, image, agents=[empty], groups=[], now=timezone.now())


@pytest.mark.parametrize("by_role", [False, True])
def test_one_that_sessions_need_is_not_deleted_and_one_that_is_leaves_nodes_and_lists(
    cast: Cast, by_role: bool
) -> None:
    saved = Saved(cast)
    image = saved.make()
    usual, roles = ("python", {"worker": RoleSpec(image=image.name)}) if by_role else (image.name, {})
    session = launch(cast.alice, usual, roles=roles)
    with pytest.raises(Conflict, match=session.name):
        delete_own_image(cast.alice, image, now=timezone.now())
    terminate_session(session, cast.alice)
    delete_own_image(cast.alice, image, now=timezone.now())
    assert saved.unwanted() == [image.reference]
    for person in (cast.alice, cast.dana):
        assert image not in Image.objects.visible_to(person)
    with pytest.raises(UserError, match=r"Image .* not found"):
        launch(cast.alice, image.name)
    assert adopt_from_agents(None) == [], "nobody else's by the way of the agents"
    session.refresh_from_db()
    assert by_role or session.image.display_name == image.name


def test_one_has_a_list_of_ones_own_and_gives_them_other_names(cast: Cast, django_assert_num_queries: Any) -> None:
    saved = Saved(cast)
    first, second = saved.make("first"), Saved(cast).make("second")
    with django_assert_num_queries(4):
        rows = own_images(cast.alice)
    assert [row.image for row in rows] == [second, first]
    assert rows[1].commit is not None and rows[1].commit.session == saved.session
    assert rows[1].agents == [saved.agent.name]
    assert own_images(cast.bob) == []
    assert rename_own_image(cast.alice, first, "third").title == "third"
    with pytest.raises(Conflict, match="second already"):
        rename_own_image(cast.alice, first, "second")
    with pytest.raises(UserError, match="at least 4"):
        rename_own_image(cast.alice, first, "abc")


def test_the_account_for_pushing_is_for_pushing_alone(cast: Cast) -> None:
    values = {"name": "lab", "url": "http://cr.example:5000", "username": "reader", "password": "may read"}
    pushes = {"takes_pushes": True, "push_username": "writer", "push_password": "correct horse"}
    registry = write_registry(None, Registry(), values | pushes)
    image = make_image("torch", reference="cr.example:5000/lab/torch:2", registry=registry, digest="sha256:" + "b" * 64)
    saved = Saved(cast, image="torch")
    saved.begin()
    access = saved.spec().access
    assert (access.username, access.password) == ("writer", "correct horse")
    pulling = access_for(image)
    assert (pulling.username, pulling.password) == ("reader", "may read")
    with mock.patch("backendai.domain.catalog.registry_access.RegistryClient") as client:
        client_of(registry)
        client_of(registry, deletes=True)
    assert [call.kwargs["username"] for call in client.call_args_list] == ["reader", "writer"]
    assert "correct horse" not in registry.sealed_push_password
    assert "correct horse" not in str(list(AuditEntry.objects.values()))


def test_it_goes_to_the_registry_that_takes_it_and_then_to_every_node(cast: Cast) -> None:
    values = {"name": "lab", "url": "http://cr.example:5000", "username": "robot", "password": "correct horse"}
    registry = write_registry(None, Registry(), values | {"takes_pushes": True})
    make_image("torch", reference="cr.example:5000/lab/torch:2", registry=registry, digest="sha256:" + "b" * 64)
    saved = Saved(cast, image="torch")
    saved.begin()
    spec = saved.spec()
    assert (spec.push, spec.access.username, spec.access.password) == (True, "robot", "correct horse")
    assert spec.reference.startswith("cr.example:5000/lab/torch:2-customized_") and "correct" not in repr(spec)
    digest = "sha256:" + "d" * 64
    assert saved.tell(spec.commit_id, JobState.RUNNING, phase=PUSHING, progress=0.5)
    assert saved.tell(spec.commit_id, JobState.DONE, size_bytes=5, digest=digest)
    image = Image.objects.get(pk=spec.commit_id)
    assert (image.registry, image.digest, image.is_on_nodes_only) == (registry, digest, False)
    other = make_agent(cpu=64)
    session = launch(cast.alice, image.name)
    place(session, other)
    Registry.objects.update(takes_pushes=False)
    again = Saved(cast, image="torch")
    again.begin("again")
    assert not again.spec().push


def test_what_a_person_made_goes_with_their_account(cast: Cast) -> None:
    saved = Saved(cast)
    image = saved.make()
    terminate_session(saved.session, cast.alice, force=True)
    ComputeSession.objects.update(status=Status.TERMINATED)
    cast.alice.is_active = False
    cast.alice.save()
    purge_user(cast.dana, cast.alice, typed=cast.alice.email, now=timezone.now())
    image.refresh_from_db()
    assert image.deleted_at is not None and image.title == ""
    assert saved.unwanted() == [image.reference]


def test_scripts_save_list_rename_and_delete(cast: Cast) -> None:
    saved = Saved(cast)
    alice, bob, dana = Client(), Client(), Client()
    for client, person in ((alice, cast.alice), (bob, cast.bob), (dana, cast.dana)):
        client.force_login(person)
    address = f"/api/v1/sessions/{saved.session.pk}/commit/"
    kind = "application/json"
    assert bob.post(address, {"name": "bobs"}, content_type=kind).status_code == 404
    wrong = alice.post(address, {"name": "no"}, content_type=kind)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid-name")
    answer = alice.post(address, {"name": "tools"}, content_type=kind)
    assert (answer.status_code, answer.json()["kind"]) == (202, "image.commit")
    spec = saved.spec()
    saved.tell(spec.commit_id, JobState.DONE, size_bytes=7)
    job = alice.get(f"/api/v1/jobs/{answer.json()['id']}/").json()
    assert job["result"] == {"image": str(spec.commit_id), "name": Image.objects.get(pk=spec.commit_id).name}
    mine = alice.get("/api/v1/images/?mine=true").json()["results"]
    assert [(one["title"], one["owner"], one["size_bytes"]) for one in mine] == [("tools", cast.alice.email, 7)]
    assert "tools" not in json.dumps(alice.get("/api/v1/images/?mine=false").json())
    assert [one["id"] for one in alice.get("/api/v1/me/images/").json()["results"]] == [mine[0]["id"]]
    own, foreign = f"/api/v1/me/images/{mine[0]['id']}/", f"/api/v1/images/{mine[0]['id']}/"
    assert bob.get(foreign).status_code == bob.delete(own).status_code == dana.delete(own).status_code == 404
    assert alice.patch(own, {"name": "other-tools"}, content_type=kind).json()["title"] == "other-tools"
    assert alice.delete(own).status_code == 204
    assert alice.get(foreign).status_code == dana.get(foreign).status_code == 404


def test_only_ours_are_named_by_the_labels(cast: Cast, settings: Any) -> None:
    saved = Saved(cast)
    saved.begin()
    assert saved.spec().labels[DEPLOYMENT_LABEL] == settings.DEPLOYMENT


def test_nodes_ask_and_tell_over_their_own_api(cast: Cast) -> None:
    room = Slots.parse({"cpu": 4, "mem": "8g"}).to_json()
    machine, stranger = Machine("one", capacity=room), Machine("two")
    session = make_running_session(cast.alice, machine.agent)
    start_commit(cast.alice, session, "tools", now=timezone.now())
    (order,) = orders_of([machine.agent.pk])[machine.agent.pk]
    address = f"/jobs/{COMMIT}/{order.job_id}"
    answer = machine.ask("GET", address)
    spec = CommitSpec.model_validate(NodeJobSpec.model_validate_json(answer.content).work)
    assert (spec.kernel_id, answer["Cache-Control"]) == (session.kernels.get().pk, "no-store")
    assert stranger.ask("GET", address).status_code == 404
    done = NodeJobReport(kind=COMMIT, job_id=order.job_id, state=JobState.DONE, result={"size_bytes": 9})
    told = stranger.ask("POST", f"{address}/report", done.model_dump_json())
    assert (told.status_code, json.loads(told.content)) == (200, {"wanted": False})
    other = machine.ask("POST", f"/jobs/{COMMIT}/{session.pk}/report", done.model_dump_json())
    broken = done.model_copy(update={"result": {"size_bytes": -1}}).model_dump_json()
    assert other.status_code == machine.ask("POST", f"{address}/report", broken).status_code == 400
    assert machine.ask("GET", f"/jobs/no.such/{order.job_id}").status_code == 404
    assert json.loads(machine.ask("POST", f"{address}/report", done.model_dump_json()).content) == {"wanted": True}
    assert Image.objects.get(pk=order.job_id).size_bytes == 9
    assert machine.ask("GET", address).status_code == 404
