"""Cutting a session off from a folder that is no longer shared with its owner."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.activity.models import AuditEntry
from backendai.compute.models import ComputeSession, SessionNotice
from backendai.compute.services.reports import kernel_reported
from backendai.compute.spec import MountWish
from backendai.compute.status import Status
from backendai.storage.models import Folder, FolderGrant
from backendai.storage.status import Rights
from backendai.wire.messages import KernelState
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
    return make_running_session(cast.bob, agent, mounts=[MountWish(str(shared.pk))])


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
    assert guest.name in page and "bob@example.com" in page and "Cut off session" in page
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
    assert bob.post(there).status_code == 403
    assert alice.post(there).json()["code"] == "still-shared"
    FolderGrant.objects.all().delete()
    assert bob.post(there).status_code == 404
    answer = alice.post(there)
    assert (answer.status_code, answer.json()["session_id"]) == (202, str(guest.pk)), answer.content
    other = ready_folder(cast.alice, "other")
    assert alice.post(f"/api/v1/folders/{other.pk}/uses/{guest.pk}/cut-off/").status_code == 404
