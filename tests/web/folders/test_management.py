"""Sharing, settings, cloning, and the administration pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import Membership, User
from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.models import Folder, FolderFill, FolderGrant, StorageHost
from backendai.domain.storage.services import create_folder
from backendai.domain.storage.status import FolderStatus, GrantKind, Rights
from tests.cast import Cast
from tests.factories import make_session
from tests.pages import markup
from tests.storage.fake_file_server import FakeFileServer


def text(answer: Any) -> str:
    return str(markup(answer))


def page(folder: Folder, name: str) -> str:
    return reverse(f"web:folder_{name}", args=[folder.pk])


@pytest.fixture
def dana(cast: Cast, browse: Callable[[User], Client]) -> Client:
    """The superadmin's browser."""
    return browse(cast.dana)


def test_a_folder_is_shared_accepted_and_taken_back(cast: Cast, data: Folder, alice: Client, bob: Client) -> None:
    invite = {"kind": "invite", "email": "bob@example.com", "rights": "view"}
    assert alice.post(page(data, "sharing"), invite)["Location"] == page(data, "sharing")
    assert "not yet accepted" in text(alice.get(page(data, "sharing")))
    assert "Withdraw invitation" in text(alice.get(page(data, "sharing")))
    assert bob.get(reverse("web:folder", args=[data.pk])).status_code == 404
    bob.post(reverse("web:folder_invitation", args=[FolderGrant.objects.get().pk]), {"answer": "accept"})
    assert bob.get(reverse("web:folder", args=[data.pk])).status_code == 200
    assert bob.post(reverse("web:folder_revoke", args=[data.pk, cast.bob.pk])).status_code == 404
    offered = '<button class="btn btn-sm" type="submit" name="rights" value="%s">%s'
    assert offered % ("edit", "Allow editing") in text(alice.get(page(data, "sharing")))
    told = text(alice.post(page(data, "sharing"), invite | {"rights": "edit"}, follow=True))
    assert offered % ("view", "Allow viewing only") in told
    assert "The rights of bob@example.com are set." in told and "is invited" not in told and "Stop sharing" in told
    alice.post(reverse("web:folder_revoke", args=[data.pk, cast.bob.pk]))
    assert bob.get(reverse("web:folder", args=[data.pk])).status_code == 404


def test_an_address_of_nobody_is_said_at_its_field(data: Folder, alice: Client) -> None:
    invite = {"kind": "invite", "email": "charlie@example.com", "rights": "view"}
    answer = alice.post(page(data, "sharing"), invite)
    assert answer.status_code == 422
    assert "No account with this address" in str(answer.context["form"].errors["email"])
    assert alice.post(page(data, "sharing"), invite | {"email": "no"}).status_code == 422
    own = alice.post(page(data, "sharing"), invite | {"email": "Alice@example.com"})
    assert own.context["form"].errors["email"] == ["You manage this folder yourself: name another person."]


def test_a_member_of_a_project_gets_other_rights_than_the_rest(
    cast: Cast, host: StorageHost, alice: Client, bob: Client
) -> None:
    Membership.objects.filter(user=cast.alice).update(role=Membership.Role.ADMIN)
    folder = create_folder(cast.alice, name="team", host=host, project=cast.project, now=timezone.now())
    form = {"kind": "override", "member": str(cast.bob.pk), "member_rights": "none"}
    assert alice.post(page(folder, "sharing"), form).status_code == 302
    assert FolderGrant.objects.get().kind == GrantKind.OVERRIDE
    assert bob.get(reverse("web:folder", args=[folder.pk])).status_code == 404
    alice.post(reverse("web:folder_revoke", args=[folder.pk, cast.bob.pk]))
    assert bob.get(reverse("web:folder", args=[folder.pk])).status_code == 200
    outsider = {"kind": "override", "member": str(cast.charlie.pk), "member_rights": "edit"}
    assert alice.post(page(folder, "sharing"), outsider).status_code == 422
    superadmin = alice.post(page(folder, "sharing"), outsider | {"member": str(cast.dana.pk)})
    assert "dana@example.com manages this folder" in superadmin.context["override_form"].errors["member"][0]
    assert alice.post(page(folder, "sharing"), outsider | {"member": str(cast.alice.pk)}).status_code == 422


def test_settings_are_saved_and_what_is_wrong_is_said(cast: Cast, data: Folder, alice: Client) -> None:
    form = {"name": "renamed", "limit_bytes": "5 GiB", "is_cloneable": "on"}
    assert alice.post(page(data, "settings"), form).status_code == 302
    data.refresh_from_db()
    assert (data.name, data.limit_bytes, data.is_cloneable) == ("renamed", 5 * 2**30, True)
    assert 'value="5 GiB"' in text(alice.get(page(data, "settings")))
    answer = alice.post(page(data, "settings"), form | {"name": "a/b"})
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, ["name"])


def test_it_is_cloned_by_those_who_may(cast: Cast, data: Folder, alice: Client, bob: Client) -> None:
    FolderGrant.objects.create(folder=data, user=cast.bob, rights=Rights.VIEW, accepted_at=timezone.now())
    assert bob.post(page(data, "clone"), {"name": "his"}).status_code == 422
    alice.post(page(data, "settings"), {"name": "data", "limit_bytes": "", "is_cloneable": "on"})
    answer = bob.post(page(data, "clone"), {"name": "his"})
    clone = Folder.objects.get(name="his")
    assert answer["Location"] == reverse("web:folder", args=[clone.pk])
    assert (clone.user, clone.cloned_from) == (cast.bob, data)


def test_a_guest_leaves_and_the_owner_cannot(cast: Cast, data: Folder, alice: Client, bob: Client) -> None:
    FolderGrant.objects.create(folder=data, user=cast.bob, rights=Rights.VIEW, accepted_at=timezone.now())
    assert "Leave folder" in text(bob.get(page(data, "settings")))
    bob.post(reverse("web:folder_state", args=[data.pk, "leave"]))
    assert not FolderGrant.objects.exists()
    alice.post(reverse("web:folder_state", args=[data.pk, "leave"]))
    assert Folder.objects.get().status == FolderStatus.READY


def test_the_owner_sees_every_session_that_uses_it_and_a_guest_only_their_own(
    cast: Cast, data: Folder, alice: Client, bob: Client
) -> None:
    FolderGrant.objects.create(folder=data, user=cast.bob, rights=Rights.EDIT, accepted_at=timezone.now())
    for user, name in ((cast.alice, "hers-1"), (cast.bob, "his-1")):
        session = make_session(user, name=name)
        SessionMount.objects.create(session=session, folder=data, folder_name="data", target="/x", rights=Rights.EDIT)
    assert {mount.session.name for mount in alice.get(page(data, "settings")).context["uses"]} == {"hers-1", "his-1"}
    assert {mount.session.name for mount in bob.get(page(data, "settings")).context["uses"]} == {"his-1"}


def test_administrators_see_folders_of_others_by_size(
    cast: Cast, data: Folder, host: StorageHost, dana: Client, alice: Client
) -> None:
    create_folder(cast.charlie, name="elsewhere", host=host, now=timezone.now())
    Folder.objects.filter(pk=data.pk).update(used_bytes=2**30)
    shown = text(dana.get(reverse("manage:folders")))
    assert shown.index("alice@example.com") < shown.index("charlie@example.com")
    assert "1 GiB" in shown
    assert alice.get(reverse("manage:folders")).status_code == 404
    User.objects.filter(pk=cast.bob.pk).update(role=User.Role.ADMIN)
    bobs = Client()
    bobs.force_login(User.objects.get(pk=cast.bob.pk))
    shown = text(bobs.get(reverse("manage:folders")))
    assert "alice@example.com" in shown and "charlie@example.com" not in shown
    assert bobs.get(reverse("manage:folder-link")).status_code == 404


def test_superadmins_write_storage_hosts(cast: Cast, host: StorageHost, dana: Client, alice: Client) -> None:
    new = reverse("manage:storage-host-new")
    form = {"name": "fast", "title": "Flash", "address": "http://10.0.0.1:8093", "is_enabled": "on", "is_default": "on"}
    assert dana.post(new, form).status_code == 302
    fast = StorageHost.objects.get(name="fast")
    host.refresh_from_db()
    assert (fast.is_default, host.is_default) == (True, False)
    assert dana.post(new, form | {"name": "other", "address": "nowhere"}).status_code == 422
    now = timezone.now()
    StorageHost.objects.filter(pk=fast.pk).update(fault="It is not mounted.", fault_since=now, answered_at=now)
    shown = text(dana.get(reverse("manage:storage-hosts")))
    assert "unreachable since <time" in shown and "It is not mounted." in shown
    shown = text(dana.get(reverse("manage:storage-host", args=[fast.pk])))
    assert "It is not mounted." in shown and f'since <time datetime="{now.isoformat()}"' in re.sub(
        "[\u2068\u2069]", "", shown
    )
    StorageHost.objects.filter(pk=fast.pk).update(unknown_folders=[{"id": "0c", "meta": {"name": "lost"}}])
    shown = text(dana.get(reverse("manage:storage-host", args=[fast.pk])))
    assert "manage.py adopt_folders fast" in shown and "lost" in shown
    assert alice.get(new).status_code == 404
    dana.post(reverse("manage:storage-host-delete", args=[fast.pk]))
    assert not StorageHost.objects.filter(name="fast").exists()


def test_a_host_with_folders_is_not_deleted(data: Folder, host: StorageHost, dana: Client) -> None:
    answer = dana.post(reverse("manage:storage-host-delete", args=[host.pk]))
    assert (answer.status_code, StorageHost.objects.count()) == (422, 1)


def test_a_superadmin_links_a_directory(
    cast: Cast, host: StorageHost, files: FakeFileServer, dana: Client, alice: Client
) -> None:
    form = {"name": "imagenet", "host": str(host.pk), "path": "/data/imagenet", "project": str(cast.project.pk)}
    assert dana.post(reverse("manage:folder-link"), form | {"path": "data"}).status_code == 422
    assert dana.post(reverse("manage:folder-link"), form).status_code == 302
    folder = Folder.objects.get()
    assert (folder.linked_path, folder.project) == ("/data/imagenet", cast.project)
    shown = text(alice.get(reverse("web:folder", args=[folder.pk])))
    assert "Upload files" not in shown


def test_a_clone_can_lie_on_another_storage_host(data: Folder, alice: Client) -> None:
    settings = page(data, "settings")
    assert 'name="host"' not in markup(alice.get(settings))  # there is one alone
    nas = StorageHost.objects.create(name="nas", address="http://127.0.0.1:1")
    assert f'<option value="{data.host_id}" selected>' in markup(alice.get(settings))
    alice.post(page(data, "clone"), {"name": "far", "host": str(nas.pk)})
    clone = Folder.objects.get(name="far")
    assert (clone.host, clone.status) == (nas, FolderStatus.CREATING) and FolderFill.objects.get().folder == clone
    alice.post(page(data, "clone"), {"name": "near", "host": str(data.host_id)})
    assert not FolderFill.objects.filter(folder__name="near").exists()
