"""Cutting a session off from a folder that is no longer shared with its owner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.spec import MountRequest
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.status import Rights
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, report_of
from tests.mount_tools import ready_folder, storage_host

pytestmark = pytest.mark.django_db


@pytest.fixture
def shared(cast: Cast) -> Folder:
    folder = ready_folder(cast.alice)
    FolderGrant.objects.create(folder=folder, user=cast.bob, rights=Rights.EDIT, accepted_at=timezone.now())
    return folder


@pytest.fixture
def guest(cast: Cast, shared: Folder) -> ComputeSession:
    """Bob's session, which mounts Alice's folder."""
    agent = make_agent()
    storage_host("local", agent)
    return make_running_session(cast.bob, agent, mounts=[MountRequest(str(shared.pk))])


def address(folder: Folder, session: ComputeSession) -> str:
    return reverse("web:folder_cut_off", args=[folder.pk, session.pk])


def test_a_session_keeps_the_folder_while_it_is_shared(shared: Folder, guest: ComputeSession, alice: Client) -> None:
    assert address(shared, guest) in alice.get(reverse("web:folder_sharing", args=[shared.pk])).content.decode()
    for answer in (alice.get(address(shared, guest), follow=True), alice.post(address(shared, guest), follow=True)):
        assert "still has the rights to data" in answer.content.decode()
    guest.refresh_from_db()
    assert guest.status == Status.RUNNING


def test_after_the_end_of_sharing_it_is_ended_with_its_reason(
    shared: Folder, guest: ComputeSession, alice: Client, cast: Cast
) -> None:
    FolderGrant.objects.all().delete()
    page = alice.get(address(shared, guest)).content.decode()
    assert guest.name in page and "bob@example.com" in page and "Unmount folder" in page and "Terminate session" in page
    guest.refresh_from_db()
    assert guest.status == Status.RUNNING  # a look changes nothing
    alice.post(address(shared, guest))
    guest.refresh_from_db()
    assert (guest.status, guest.status_reason) == (Status.TERMINATING, "folder-revoked")
    assert "alice@example.com cut it off from the folder data" in guest.status_message
    assert AuditEntry.objects.filter(action="folder.cut-off", target_id=str(shared.pk)).count() == 1
    kernel = guest.kernels.get()
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, reason="force-terminated"))
    assert SessionNotice.objects.filter(session=guest).exists()  # Bob is told
    assert "no live session" in alice.get(address(shared, guest), follow=True).content.decode().lower()


@pytest.fixture
def gateway(guest: ComputeSession) -> Iterator[list[Any]]:
    """The gateway of Bob's agent: what it was asked, and what it answers next."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            status, body = answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            return

    answers = [(200, b'{"ended": 2}')]
    asked.append(answers)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    Agent.objects.update(gateway_url=f"http://127.0.0.1:{server.server_port}")
    yield asked
    server.shutdown()
    server.server_close()


def test_the_folder_is_unmounted_and_the_session_goes_on(
    shared: Folder, guest: ComputeSession, alice: Client, gateway: list[Any]
) -> None:
    answers = gateway.pop()
    assert (
        "still has the rights" in alice.post(address(shared, guest), {"how": "unmount"}, follow=True).content.decode()
    )
    FolderGrant.objects.all().delete()
    for status, body, why in (
        (503, b"This agent does not have the right to unmount folders of sessions that run.", "not have the right"),
        (404, b"404: Not Found", "an earlier version"),
        (200, b'{"ended": Infinity}', "an unexpected answer"),
        (200, b"[" * 4000, "an unexpected answer"),
    ):
        answers[0] = (status, body)
        shown = alice.post(address(shared, guest), {"how": "unmount"}, follow=True).content.decode()
        assert "The folder cannot be unmounted" in shown and why in shown
        assert guest.mounts.get().cut_at is None
    answers[0] = (200, b'{"ended": 2}')
    shown = alice.post(address(shared, guest), {"how": "unmount"}, follow=True).content.decode()
    assert "goes on without the folder. 2 programs that used it were ended." in shown
    assert gateway == [f"/kernels/{guest.kernels.get().pk}/cut?folder={shared.pk}"] * 5
    guest.refresh_from_db()
    mount = guest.mounts.get()
    assert guest.status == Status.RUNNING and mount.cut_at == mount.released_at is not None
    assert AuditEntry.objects.filter(action="folder.unmount", target_id=str(shared.pk)).count() == 1
    assert run_checks(World(timezone.now()), ["F-03", "I-16"]) == {}
    assert "no live session" in alice.get(address(shared, guest), follow=True).content.decode().lower()


def test_a_script_unmounts_it_or_hears_why_not(shared: Folder, guest: ComputeSession, alice: Client) -> None:
    FolderGrant.objects.all().delete()
    there = f"/api/v1/folders/{shared.pk}/uses/{guest.pk}/cut-off/"
    Agent.objects.update(gateway_url="http://127.0.0.1:9")
    refused = alice.post(there, {"keep_session": True}, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (409, "not-unmounted")
    assert "does not answer" in refused.json()["detail"]


def test_of_a_linked_folder_the_session_can_only_be_ended(
    shared: Folder, guest: ComputeSession, alice: Client, gateway: list[Any]
) -> None:
    FolderGrant.objects.all().delete()
    Folder.objects.update(linked_path="/data/sets/faces")
    page = alice.get(address(shared, guest)).content.decode()
    assert "Terminate session" in page and "Unmount" not in page
    shown = alice.post(address(shared, guest), {"how": "unmount"}, follow=True).content.decode()
    assert "It is a linked folder. Terminate the session instead." in shown and len(gateway) == 1, "nobody was asked"


def test_rights_that_shrank_below_the_mount_count_too(shared: Folder, guest: ComputeSession, alice: Client) -> None:
    FolderGrant.objects.update(rights=Rights.VIEW)
    alice.post(address(shared, guest))
    guest.refresh_from_db()
    assert guest.status == Status.TERMINATING


def test_only_those_who_manage_the_folder_cut_off(
    shared: Folder, guest: ComputeSession, alice: Client, bob: Client, cast: Cast
) -> None:
    assert bob.post(address(shared, guest)).status_code == 404
    there = f"/api/v1/folders/{shared.pk}/uses/{guest.pk}/cut-off/"
    assert bob.post(there, content_type="application/json").status_code == 403
    assert alice.post(there, content_type="application/json").json()["code"] == "still-shared"
    FolderGrant.objects.all().delete()
    assert bob.post(there, content_type="application/json").status_code == 404
    answer = alice.post(there, content_type="application/json")
    assert (answer.status_code, answer.json()["session_id"]) == (202, str(guest.pk)), answer.content
    other = ready_folder(cast.alice, "other")
    assert (
        alice.post(f"/api/v1/folders/{other.pk}/uses/{guest.pk}/cut-off/", content_type="application/json").status_code
        == 404
    )
