"""Folders from creation to the end: made by their file server, renamed, limited, trashed, restored, purged."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotAllowed, NotFound, UserError
from backendai.domain.accounts.models import Membership, ResourcePolicy
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import (
    clone_folder,
    create_folder,
    link_folder,
    purge_folder,
    rename_folder,
    restore_folder,
    retry_folder,
    set_limit,
    trash_folder,
)
from backendai.domain.storage.status import FolderStatus, Rights
from tests.cast import Cast
from tests.factories import make_session
from tests.storage.fake_file_server import FakeFileServer

pytestmark = pytest.mark.django_db
NOW = timezone.now()
GIB = 2**30


@pytest.fixture
def folder(cast: Cast, host: StorageHost) -> Folder:
    return create_folder(cast.alice, name="data", limit_bytes=GIB, now=NOW)


def mount(folder: Folder, cast: Cast) -> SessionMount:
    values = {"folder_name": folder.name, "target": "/home/work/data", "rights": Rights.EDIT}
    return SessionMount.objects.create(session=make_session(cast.alice, name="training"), folder=folder, **values)


def test_a_new_folder_is_ready_at_once_and_its_server_knows_whose_it_is(folder: Folder, files: FakeFileServer) -> None:
    assert (folder.status, folder.version) == (FolderStatus.READY, 2)
    known = files.folders[str(folder.pk)]
    assert known["meta"] == {
        "name": "data", "owner": "user:alice@example.com", "usage": "general", "member_rights": "edit",
        "is_cloneable": False, "limit_bytes": GIB, "created_at": NOW.isoformat(),
    }  # fmt: skip
    assert (known["limit"], files.asked[0][3]) == (GIB, "manage")
    entry = AuditEntry.objects.get(action="folder.create")
    assert (entry.target_id, entry.details["owner"]) == (str(folder.pk), "alice@example.com")


@pytest.mark.parametrize("name", ["", "a/b", "-x", "..", ".", "é", "x" * 65, "a b", "a\n"])
def test_a_name_that_is_none_is_refused_with_nothing_written(cast: Cast, host: StorageHost, name: str) -> None:
    with pytest.raises(UserError) as refused:
        create_folder(cast.alice, name=name, now=NOW)
    assert (refused.value.field, Folder.objects.count()) == ("name", 0)


def test_a_name_is_taken_once_for_each_owner(folder: Folder, cast: Cast) -> None:
    with pytest.raises(Conflict) as refused:
        create_folder(cast.alice, name="data", now=NOW)
    assert (refused.value.code, refused.value.field) == ("name-taken", "name")
    assert create_folder(cast.bob, name="data", now=NOW).status == FolderStatus.READY


def test_a_project_folder_needs_somebody_who_manages_the_project(cast: Cast, host: StorageHost) -> None:
    with pytest.raises(NotFound):
        create_folder(cast.alice, name="shared", project=cast.project, now=NOW)
    Membership.objects.filter(user=cast.alice).update(role="admin")
    folder = create_folder(cast.alice, name="shared", project=cast.project, now=NOW)
    assert (folder.user, folder.project) == (None, cast.project)


def test_a_server_that_refuses_makes_the_folder_an_error_that_can_be_retried(
    cast: Cast, host: StorageHost, files: FakeFileServer
) -> None:
    files.refuses = (507, "full")
    folder = create_folder(cast.alice, name="data", now=NOW)
    assert (folder.status, folder.status_message) == (FolderStatus.ERROR, "It is full.")
    files.refuses = None
    assert retry_folder(folder, cast.alice, now=NOW).status == FolderStatus.READY


def test_a_server_that_fails_leaves_the_folder_for_the_pass(
    cast: Cast, host: StorageHost, files: FakeFileServer
) -> None:
    files.refuses = (503, "storage-missing")
    folder = create_folder(cast.alice, name="data", now=NOW)
    assert (folder.status, folder.status_message) == (
        FolderStatus.CREATING,
        "Storage host local: It is storage-missing.",
    )


def test_a_new_name_and_a_new_limit_reach_the_server(folder: Folder, cast: Cast, files: FakeFileServer) -> None:
    rename_folder(folder, cast.alice, "corpus", now=NOW)
    changed = set_limit(folder, cast.alice, 2 * GIB, now=NOW)
    known = files.folders[str(folder.pk)]
    assert (known["meta"]["name"], known["limit"], changed.needs_push) == ("corpus", 2 * GIB, False)
    assert AuditEntry.objects.get(action="folder.rename").details["changes"] == {"name": ["data", "corpus"]}


def test_a_change_that_the_server_did_not_hear_of_is_kept_for_the_pass(
    folder: Folder, cast: Cast, files: FakeFileServer
) -> None:
    files.refuses = (503, "storage-missing")
    assert rename_folder(folder, cast.alice, "corpus", now=NOW).needs_push
    assert Folder.objects.get().name == "corpus"


def test_a_folder_goes_to_the_trash_comes_back_and_is_purged(folder: Folder, cast: Cast, files: FakeFileServer) -> None:
    trashed = trash_folder(folder, cast.alice, now=NOW)
    assert (trashed.status, trashed.trashed_at) == (FolderStatus.TRASHED, NOW)
    other = create_folder(cast.alice, name="data", now=NOW)
    with pytest.raises(Conflict) as refused:
        restore_folder(folder, cast.alice, now=NOW)
    assert refused.value.code == "name-taken"
    restored = restore_folder(folder, cast.alice, name="data-2", now=NOW)
    assert (restored.status, restored.name, restored.trashed_at) == (FolderStatus.READY, "data-2", None)
    with pytest.raises(Conflict) as refused:
        purge_folder(restored, cast.alice, typed_name="data-2", now=NOW)
    assert refused.value.code == "not-in-trash"
    trash_folder(restored, cast.alice, now=NOW)
    with pytest.raises(UserError) as wrong:
        purge_folder(restored, cast.alice, typed_name="data", now=NOW)
    assert (wrong.value.code, files.orders("DELETE")) == ("not-confirmed", [])
    assert purge_folder(restored, cast.alice, typed_name="data-2", now=NOW).status == FolderStatus.DELETED
    assert set(files.folders) == {str(other.pk)}


def test_a_mounted_folder_is_not_trashed_and_its_sessions_are_named(folder: Folder, cast: Cast) -> None:
    used = mount(folder, cast)
    with pytest.raises(Conflict) as refused:
        trash_folder(folder, cast.alice, now=NOW)
    assert refused.value.code == "folder-mounted"
    assert "training of alice@example.com" in refused.value.message
    SessionMount.objects.filter(pk=used.pk).update(released_at=NOW + timedelta(hours=1))
    assert trash_folder(folder, cast.alice, now=NOW).status == FolderStatus.TRASHED


def test_strangers_find_no_folder_and_members_manage_none(folder: Folder, cast: Cast) -> None:
    with pytest.raises(NotFound):
        rename_folder(folder, cast.charlie, "mine", now=NOW)
    with pytest.raises(NotFound):
        trash_folder(folder, cast.bob, now=NOW)
    Folder.objects.update(user=None, project=cast.project)
    with pytest.raises(NotAllowed) as refused:
        trash_folder(folder, cast.bob, now=NOW)
    assert refused.value.details["rights"] == "edit"


def test_a_policy_limits_the_number_and_the_sum_of_limits(folder: Folder, cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="small", max_folders=2, max_folder_bytes=3 * GIB)
    cast.alice.save()
    with pytest.raises(Conflict) as unlimited:
        create_folder(cast.alice, name="two", now=NOW)
    assert (unlimited.value.code, unlimited.value.details["left"]) == ("limit-needed", 2 * GIB)
    second = create_folder(cast.alice, name="two", limit_bytes=2 * GIB, now=NOW)
    with pytest.raises(Conflict) as number:
        create_folder(cast.alice, name="three", limit_bytes=1, now=NOW)
    assert number.value.code == "too-many-folders"
    with pytest.raises(Conflict) as size:
        set_limit(second, cast.alice, 2 * GIB + 1, now=NOW)
    assert (size.value.code, size.value.details["limit"]) == ("folder-bytes", 3 * GIB)
    trash_folder(second, cast.alice, now=NOW)
    create_folder(cast.alice, name="three", limit_bytes=GIB, now=NOW)
    with pytest.raises(Conflict) as restored:
        restore_folder(second, cast.alice, now=NOW)
    assert restored.value.code == "too-many-folders"
    with pytest.raises(Conflict):
        clone_folder(folder, cast.alice, name="copy", now=NOW)


def test_the_policy_of_a_domain_limits_each_of_its_people_and_projects(folder: Folder, cast: Cast) -> None:
    domain = cast.project.domain
    domain.policy = ResourcePolicy.objects.create(name="site", max_folders=1)
    domain.save()
    with pytest.raises(Conflict):
        create_folder(cast.alice, name="two", now=NOW)
    assert create_folder(cast.bob, name="one", now=NOW).pk
    assert create_folder(cast.dana, name="shared", project=cast.project, now=NOW).pk
    with pytest.raises(Conflict):
        create_folder(cast.dana, name="shared-2", project=cast.project, now=NOW)


def test_a_limit_can_be_lowered_though_a_policy_is_exceeded(folder: Folder, cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="small", max_folder_bytes=10)
    cast.alice.save()
    assert set_limit(folder, cast.alice, GIB // 2, now=NOW).limit_bytes == GIB // 2


def test_a_clone_is_ready_when_its_server_has_copied_it(folder: Folder, cast: Cast, files: FakeFileServer) -> None:
    files.clones_at_once = False
    clone = clone_folder(folder, cast.alice, name="copy", now=NOW)
    assert (clone.status, clone.limit_bytes) == (FolderStatus.CREATING, GIB)
    assert files.folders[str(clone.pk)]["source"] == str(folder.pk)
    trash_folder(folder, cast.alice, now=NOW)
    with pytest.raises(Conflict) as refused:
        purge_folder(folder, cast.alice, typed_name="data", now=NOW)
    assert refused.value.code == "folder-cloned"


def test_only_a_cloneable_folder_is_cloned_by_those_who_view_it(folder: Folder, cast: Cast) -> None:
    Folder.objects.update(user=None, project=cast.project, member_rights=Rights.VIEW)
    with pytest.raises(NotAllowed):
        clone_folder(folder, cast.bob, name="copy", now=NOW)
    Folder.objects.update(is_cloneable=True)
    assert clone_folder(folder, cast.bob, name="copy", now=NOW).user == cast.bob


def test_a_superadmin_links_a_directory_and_nobody_else(cast: Cast, host: StorageHost, files: FakeFileServer) -> None:
    with pytest.raises(NotAllowed):
        link_folder(cast.alice, name="imagenet", path="/data/imagenet", now=NOW)
    for path in ("data", "/data/../etc", ""):
        with pytest.raises(UserError):
            link_folder(cast.dana, name="imagenet", path=path, now=NOW)
    folder = link_folder(cast.dana, name="imagenet", path="/data/imagenet", now=NOW)
    assert (folder.status, files.folders[str(folder.pk)]["linked"]) == (FolderStatus.READY, "/data/imagenet")
