"""A session is saved as an image, started from again and deleted: the portal's verbs and the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.base.core.errors import UserError
from backendai.base.wire.images import DEPLOYMENT_LABEL
from backendai.base.wire.messages import KernelState
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.catalog.registries import write_registry
from backendai.domain.catalog.services import record_images
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import orders_of
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.images.commits import start_commit
from backendai.domain.compute.services.images.own_images import delete_own_image
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.spec import SessionSpec
from tests.agent.docker_tools import shell
from tests.agent.next_door import NextDoor
from tests.agent.push_registry import ACCOUNT, PushRegistry, taking
from tests.agent.specs import TINY_IMAGE
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session, place, report_of

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]
SECRET = "s3cret-of-the-session"


class NodeNextDoor:
    """A node with the real engine and the portal's verbs, without the way between."""

    def __init__(self, backend: DockerBackend) -> None:
        self.backend, self.agent = backend, make_agent("n1")
        self.door = NextDoor(self.agent, backend)

    def run(self, session: ComputeSession) -> UUID:
        place(session, self.agent)
        kernel = session.kernels.get()
        spec = spec_for(self.agent, kernel.pk)
        self.backend.start(spec.model_copy(update={"slots": {"cpu": "0.5", "mem": str(64 * 2**20)}}))
        kernel_reported(self.agent, report_of(kernel, KernelState.RUNNING, container_id="c"))
        session.refresh_from_db()
        return UUID(str(kernel.pk))

    def sync(self) -> None:
        self.door.work()
        record_images(self.agent, self.backend.images(), "seen")


@pytest.fixture
def node(backend: DockerBackend, deployment: str, settings: Any, engine: APIClient) -> Iterator[NodeNextDoor]:
    settings.DEPLOYMENT = deployment
    yield NodeNextDoor(backend)
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    left = engine.images(all=True, filters={"label": [f"{DEPLOYMENT_LABEL}={deployment}"]})
    for image in left:
        engine.remove_image(image["Id"], force=True)
    assert not left


def save(node: NodeNextDoor, owner: Any, session: ComputeSession, name: str) -> BackgroundJob:
    job = start_commit(owner, session, name, now=timezone.now())
    node.sync()
    job.refresh_from_db()
    return job


def test_what_a_session_wrote_is_in_the_next_one_of_its_owner_and_in_nobody_elses(
    cast: Cast, node: NodeNextDoor, engine: APIClient
) -> None:
    make_image("tiny", reference=TINY_IMAGE, is_built_here=True)
    session = make_session(cast.alice, image="tiny", environ={"TOKEN": SECRET})
    kernel_id = node.run(session)
    made = engine.exec_create(f"krn-{kernel_id}", ["sh", "-c", "mkdir /opt; echo by-alice > /opt/file"], user="0")
    engine.exec_start(made["Id"])
    job = save(node, cast.alice, session, "tools")
    assert job.status == "DONE", job.message
    image = Image.objects.get(pk=job.result["image"])
    found = engine.inspect_image(image.reference)
    assert image.size_bytes == found["Size"]
    said = json.dumps([found, engine.history(image.reference)])
    for word in (SECRET, session.access_key or "AKIA-none", cast.alice.email, session.name, str(session.pk)):
        assert word not in said

    again = create_session(cast.alice, SessionSpec(image=image.name, resources={"cpu": 1, "mem": "512m"}))
    other = node.run(again)
    assert shell(engine, other, "cat /opt/file") == (0, "by-alice\n")
    for stranger in (cast.bob, cast.charlie):
        with pytest.raises(UserError, match=r"Image .* not found"):
            create_session(stranger, SessionSpec(image=image.name, resources={"cpu": 1, "mem": "512m"}))
    with pytest.raises(UserError, match=again.name):
        delete_own_image(cast.alice, image, now=timezone.now())
    node.backend.remove(other)
    ComputeSession.objects.filter(pk=again.pk).update(status="TERMINATED")
    delete_own_image(cast.alice, image, now=timezone.now())
    node.sync()
    assert not node.backend.has_image(image.reference)
    assert orders_of([node.agent.pk]) == {}
    assert Agent.objects.count() == 1


def test_it_is_pushed_with_the_account_of_a_registry_that_takes_it(
    cast: Cast, node: NodeNextDoor, engine: APIClient
) -> None:
    with taking(PushRegistry()) as registry:
        account = {"username": ACCOUNT[0], "password": "wrong", "takes_pushes": True}
        lab = write_registry(None, Registry(), {"name": "lab", "url": f"http://{registry.address}"} | account)
        engine.tag(TINY_IMAGE, f"{registry.address}/lab/tiny", "1")
        make_image("tiny", reference=f"{registry.address}/lab/tiny:1", registry=lab)
        session = make_session(cast.alice, image="tiny")
        node.run(session)
        refused = save(node, cast.alice, session, "tools")
        assert refused.status == "FAILED" and "rejected the image" in refused.message
        assert not registry.manifests and not Image.objects.filter(is_customized=True).exists()

        write_registry(None, lab, {"password": ACCOUNT[1]})
        job = save(node, cast.alice, session, "tools")
        assert (job.status, job.message[-27:]) == ("DONE", "Stored in the registry lab."[-27:]), job.message
        image = Image.objects.get(pk=job.result["image"])
        (repository, tag), manifest = next(iter(registry.manifests.items()))
        assert (repository, tag) == ("lab/tiny", image.reference.rpartition(":")[2])
        assert json.loads(manifest)["config"]["digest"] in registry.blobs
        assert image.registry == lab and image.digest in str(engine.inspect_image(image.reference)["RepoDigests"])
        delete_own_image(cast.alice, image, now=timezone.now())
        node.sync()
        engine.remove_image(f"{registry.address}/lab/tiny:1")
