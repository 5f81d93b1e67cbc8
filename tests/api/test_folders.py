"""Folders over REST: made, changed, shared, trashed and restored, with the same answers for what is not there and what
is not one's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.domain.accounts.models import Membership, ResourcePolicy
from backendai.domain.accounts.services import create_token
from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.models import Folder, FolderSize, StorageHost
from backendai.domain.storage.services import create_folder
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_session
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = pytest.mark.django_db
FOLDERS, HOSTS = "/api/v1/folders/", "/api/v1/storage-hosts/"
NOW = timezone.now()


@pytest.fixture
def files(cast: Cast) -> Iterator[FakeFileServer]:
    with serving(FakeFileServer()) as server:
        make_host(server)
        yield server


@pytest.fixture
def alice(cast: Cast, files: FakeFileServer) -> Caller:
    return Caller(cast.alice)


@pytest.fixture
def folder(alice: Caller) -> str:
    """The address of Alice's folder."""
    answer = alice.post(FOLDERS, {"name": "data", "limit_bytes": 10**9})
    assert answer.status_code == 201, answer.content
    return f"{FOLDERS}{answer.json()['id']}/"


def patch(caller: Caller, path: str, body: dict[str, Any]) -> Any:
    return caller._client.patch(path, body, content_type="application/json")


def said(answer: Any) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["code"]


def test_a_folder_is_made_shown_and_listed(alice: Caller, folder: str) -> None:
    body = alice.get(folder).json()
    assert {name: body[name] for name in ("name", "owner", "project", "status", "rights", "limit_bytes", "host")} == {
        "name": "data", "owner": "alice@example.com", "project": None, "status": "READY", "rights": "manage",
        "limit_bytes": 10**9, "host": "local",
    }  # fmt: skip
    assert (body["is_reachable"], body["is_limit_enforced"], body["is_linked"]) == (True, False, False)
    assert [one["id"] for one in alice.get(FOLDERS).json()["results"]] == [body["id"]]


def test_the_same_key_makes_one_folder(alice: Caller) -> None:
    made = [alice.post(FOLDERS, {"name": "data"}, **{"Idempotency-Key": "k"}).json()["id"] for _ in range(2)]
    assert (made[0], Folder.objects.count()) == (made[1], 1)
    assert said(alice.post(FOLDERS, {"name": "b"}, **{"Idempotency-Key": "k"})) == (422, "idempotency-key-reused")


def test_two_who_change_the_same_folder_do_not_overwrite_each_other(alice: Caller, folder: str) -> None:
    tag = alice.get(folder)["ETag"]
    Folder.objects.update(used_bytes=7)  # as the measurement does
    assert alice.get(folder)["ETag"] == tag
    first = alice.patch(folder, {"limit_bytes": 10**8}, **{"If-Match": tag})
    assert (first.status_code, first["ETag"] != tag) == (200, True)
    assert said(alice.patch(folder, {"name": "sets"}, **{"If-Match": tag})) == (412, "changed-meanwhile")
    assert alice.patch(folder, {"name": "sets"}, **{"If-Match": first["ETag"]}).json()["name"] == "sets"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "name"),
        ({"name": "a/b"}, 400, "name"),
        ({"name": " a"}, 400, "name"),
        ({"name": "a", "limit_bytes": 0}, 400, "limit_bytes"),
        ({"name": "a", "limit_bytes": 2**63}, 400, "limit_bytes"),
        ({"name": "a", "usage": "other"}, 400, "usage"),
        ({"name": "a", "member_rights": "manage"}, 400, "member_rights"),
        ({"name": "a", "host": "elsewhere"}, 400, "host"),
        ({"name": "a", "project": str(UUID(int=1))}, 400, "project"),
        ({"name": "a", "colour": "red"}, 400, "colour"),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused_at_its_field(alice: Caller, body: dict[str, Any], status: int, field: str) -> None:
    answer = alice.post(FOLDERS, body)
    assert (answer.status_code, answer.json()["field"], Folder.objects.count()) == (status, field, 0)


def test_a_change_is_made_whole_or_not_at_all(alice: Caller, folder: str, files: FakeFileServer) -> None:
    alice.post(FOLDERS, {"name": "taken"})
    assert said(patch(alice, folder, {"limit_bytes": 5, "name": "taken"})) == (409, "name-taken")
    assert alice.get(folder).json()["limit_bytes"] == 10**9
    changed = patch(alice, folder, {"limit_bytes": None, "name": "corpus", "is_cloneable": True}).json()
    assert (changed["limit_bytes"], changed["name"], changed["is_cloneable"]) == (None, "corpus", True)
    assert said(patch(alice, folder, {"member_rights": "view"})) == (400, "not-of-project")


def test_a_policy_s_limit_is_a_conflict_with_its_numbers(alice: Caller, folder: str) -> None:
    alice.user.policy = ResourcePolicy.objects.create(name="small", max_folders=1)
    alice.user.save()
    answer = alice.post(FOLDERS, {"name": "two"})
    assert said(answer) == (409, "too-many-folders")
    assert answer.json()["data"].items() >= {"number": 1, "limit": 1}.items()


def test_it_goes_to_the_trash_comes_back_and_is_purged(alice: Caller, folder: str, files: FakeFileServer) -> None:
    trashed = alice.delete(folder).json()
    assert (trashed["status"], bool(trashed["trashed_at"]), bool(trashed["deleted_at"])) == ("TRASHED", True, True)
    assert said(alice.delete(folder)) == (409, "folder-status")
    assert said(alice.get(f"{folder}entries/")) == (409, "folder-status")
    assert alice.post(f"{folder}restore/", {"name": "back"}).json()["name"] == "back"
    alice.delete(folder)
    assert said(alice.post(f"{folder}purge/", {"name": "data"})) == (400, "not-confirmed")
    assert alice.post(f"{folder}purge/", {"name": "back"}).status_code == 202
    assert (alice.get(folder).status_code, files.folders) == (404, {})


def test_sessions_that_mount_it_keep_it_and_are_listed(alice: Caller, folder: str, cast: Cast) -> None:
    session = make_session(cast.alice, name="training")
    row = Folder.objects.get()
    SessionMount.objects.create(session=session, folder=row, folder_name="data", target="/d", rights="edit")
    answer = alice.delete(folder)
    assert said(answer) == (409, "folder-mounted")
    assert answer.json()["data"]["sessions"] == [str(session.pk)]
    uses = alice.get(f"{folder}uses/").json()["results"]
    assert [(one["session"], one["owner"], one["rights"]) for one in uses] == [
        ("training", "alice@example.com", "edit")
    ]
    Folder.objects.update(user=None, project=cast.project)
    assert Caller(cast.bob).get(f"{folder}uses/").json()["results"] == [], "a member sees own sessions only"


def test_it_is_shared_by_invitation(alice: Caller, folder: str, cast: Cast) -> None:
    bob = Caller(cast.bob)
    shared = alice.post(f"{folder}shares/", {"email": "bob@example.com", "rights": "view"})
    assert (shared.status_code, shared.json()["accepted_at"]) == (201, None)
    assert bob.get(folder).status_code == 404
    (invitation,) = bob.get(f"{FOLDERS}invitations/").json()["results"]
    assert (invitation["folder"], invitation["invited_by"], invitation["rights"]) == (
        "data", "alice@example.com", "view",
    )  # fmt: skip
    accept = f"{FOLDERS}invitations/{invitation['id']}/accept/"
    assert Caller(cast.charlie).post(accept).status_code == 404
    assert bob.post(accept).json()["rights"] == "view"
    assert bob.post(accept).status_code == 404
    assert [one["name"] for one in bob.get(FOLDERS, offered="true").json()["results"]] == ["data"]
    assert bob.get(f"{folder}entries/").status_code == 200
    assert said(bob.post(f"{folder}directories/", {"path": "new"})) == (403, "folder-rights")
    assert said(bob.get(f"{folder}shares/")) == (403, "folder-rights")
    assert bob.post(f"{folder}leave/").status_code == 204
    assert bob.get(folder).status_code == 404
    alice.post(f"{folder}shares/", {"email": "bob@example.com", "rights": "edit"})
    (invitation,) = bob.get(f"{FOLDERS}invitations/").json()["results"]
    assert bob.post(f"{FOLDERS}invitations/{invitation['id']}/decline/").status_code == 204
    assert alice.get(f"{folder}shares/").json()["results"] == []


def test_members_of_a_project_can_have_other_rights(cast: Cast, files: FakeFileServer) -> None:
    Membership.objects.filter(user=cast.alice).update(role="admin")
    alice, bob = Caller(cast.alice), Caller(cast.bob)
    body = {"name": "shared", "project": str(cast.project.pk), "member_rights": "view"}
    path = f"{FOLDERS}{alice.post(FOLDERS, body).json()['id']}/"
    assert bob.get(path).json()["rights"] == "view"
    override = {"email": "bob@example.com", "rights": "edit", "kind": "override"}
    assert alice.post(f"{path}shares/", override).status_code == 201
    assert bob.get(path).json()["rights"] == "edit"
    assert said(alice.post(f"{path}shares/", override | {"email": "charlie@example.com"})) == (404, "no-member")
    assert alice.delete(f"{path}shares/{cast.bob.pk}/").status_code == 204
    assert bob.get(path).json()["rights"] == "view"


def test_a_clone_belongs_to_whoever_made_it(alice: Caller, folder: str, files: FakeFileServer) -> None:
    clone = alice.post(f"{folder}clone/", {"name": "copy"}).json()
    assert (clone["name"], clone["owner"], clone["status"]) == ("copy", "alice@example.com", "READY")
    assert said(alice.post(f"{folder}clone/", {"name": "copy"})) == (409, "name-taken")


def test_files_are_listed_made_and_deleted(alice: Caller, folder: str, files: FakeFileServer) -> None:
    made = alice.post(f"{folder}directories/", {"path": "new"})
    assert (made.status_code, made.json()) == (201, {"path": "new"})
    assert said(alice.post(f"{folder}directories/", {"path": "new"})) == (409, "exists")
    assert [one["name"] for one in alice.get(f"{folder}entries/?path=&limit=10").json()["entries"]] == ["new"]
    assert [one["name"] for one in alice.get(f"{folder}entries/?path=&after=").json()["entries"]] == ["new"]
    for path, body in (
        ("moves/", {"source": "new", "target": "old"}),
        ("copies/", {"source": "new", "target": "old"}),
        ("deletions/", {"paths": ["new"]}),
        ("trash/item-1/restore/", {}),
    ):
        assert alice.post(folder + path, body).status_code == 200, path
    assert alice.get(f"{folder}trash/").json() == {"items": [], "next": None}
    assert [alice.delete(folder + path).status_code for path in ("trash/item-1/", "trash/")] == [204, 204]
    pk = folder.split("/")[-2]
    asked = [(method, path.removeprefix(f"/v1/folders/{pk}"), rights) for method, path, _, rights in files.asked]
    assert asked[-7:] == [
        ("POST", "/moves", "edit"), ("POST", "/copies", "edit"), ("POST", "/deletions", "edit"),
        ("POST", "/trash/item-1/restore", "edit"), ("GET", "/trash", "view"), ("DELETE", "/trash/item-1", "edit"),
        ("DELETE", "/trash", "edit"),
    ]  # fmt: skip


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"sort": "colour"}, {"colour": "red"}], ids=str)
def test_a_wrong_query_is_refused(alice: Caller, folder: str, query: dict[str, Any]) -> None:
    assert alice.get(f"{folder}entries/", **query).status_code == 400


@pytest.mark.parametrize(
    ("status", "shown"),
    [(403, 403), (404, 404), (409, 409), (413, 413), (422, 400), (507, 507), (500, 503), (401, 503)],
)
def test_a_refusal_of_the_file_server_keeps_its_code(
    alice: Caller, folder: str, files: FakeFileServer, status: int, shown: int
) -> None:
    files.refuses = (status, "that-is-why")
    assert said(alice.get(f"{folder}entries/")) == (shown, "that-is-why")


def test_a_storage_host_that_is_away_is_said_in_words(alice: Caller, folder: str) -> None:
    StorageHost.objects.update(address="http://127.0.0.1:1")
    answer = alice.get(f"{folder}entries/")
    assert said(answer) == (503, "storage-silent")
    assert answer.json()["detail"] == "Storage host local does not answer. Try again in a few seconds."


def test_its_size_is_told_by_day(alice: Caller, folder: str) -> None:
    FolderSize.objects.create(folder=Folder.objects.get(), day="2030-01-01", used_bytes=5, used_files=1)
    usage = alice.get(f"{folder}usage/").json()
    assert (usage["limit_bytes"], usage["days"]) == (
        10**9, [{"day": "2030-01-01", "used_bytes": 5, "used_files": 1}],
    )  # fmt: skip


def test_a_ticket_is_given_where_scripts_reach_the_file_server(
    alice: Caller, folder: str, cast: Cast, files: FakeFileServer
) -> None:
    assert said(alice.post(f"{folder}ticket/", {})) == (409, "no-direct-access")
    StorageHost.objects.update(public_address="https://files.example.org")
    given = alice.post(f"{folder}ticket/", {"rights": "edit"})
    assert (given.json()["address"], given.json()["expires_in"]) == ("https://files.example.org", 30)
    assert given["Cache-Control"] == "no-store"
    pk = folder.split("/")[-2]
    assert files.answer("GET", f"/v1/folders/{pk}/entries", {}, None, given.json()["ticket"])[0] == 200
    Folder.objects.update(user=None, project=cast.project, member_rights="view")
    assert said(Caller(cast.bob).post(f"{folder}ticket/", {"rights": "edit"})) == (403, "folder-rights")


def test_files_of_a_linked_folder_are_never_changed(cast: Cast, alice: Caller, files: FakeFileServer) -> None:
    dana = Caller(cast.dana)
    body = {"name": "imagenet", "linked_path": "/data/imagenet"}
    assert said(alice.post(FOLDERS, body)) == (403, "not-allowed")
    made = dana.post(FOLDERS, body).json()
    assert (made["is_linked"], made["status"]) == (True, "READY")
    assert said(dana.post(f"{FOLDERS}{made['id']}/directories/", {"path": "x"})) == (403, "linked-folder")
    assert "/data/imagenet" not in str(made)


def test_the_list_can_be_narrowed(alice: Caller, folder: str, cast: Cast) -> None:
    create_folder(cast.dana, name="other", now=NOW)
    dana = Caller(cast.dana)

    def names(**query: str) -> list[str]:
        return [one["name"] for one in dana.get(FOLDERS, **query).json()["results"]]

    assert names() == ["data", "other"]
    assert names(offered="true") == ["other"]
    assert names(offered="false") == ["data"]
    assert names(owner="Alice@example.com") == names(name="data") == ["data"]
    assert names(host="local", status="TRASHED") == []
    alice.delete(folder)
    assert names(status="TRASHED") == ["data"]


def test_the_list_asks_the_database_as_often_for_many_as_for_one(alice: Caller, folder: str, cast: Cast) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            assert alice.get(FOLDERS).status_code == 200
        return len(asked)

    queries()
    few = queries()
    for number in range(4):
        create_folder(cast.alice, name=f"more-{number}", now=NOW)
    Membership.objects.filter(user=cast.alice).update(role="admin")
    create_folder(cast.alice, name="shared", project=cast.project, now=NOW)
    assert queries() == few


def test_folders_of_a_person_go_to_another_one(alice: Caller, folder: str, cast: Cast) -> None:
    path, body = f"{FOLDERS}transfer/", {"from_user": "alice@example.com", "to_user": "bob@example.com"}
    assert alice.post(path, body).status_code == 404
    same = Caller(cast.dana).post(path, body | {"to_user": "alice@example.com"})
    assert (said(same), same.json()["field"]) == ((400, "same-person"), "to_user")
    own = alice.post(f"{folder}shares/", {"email": "alice@example.com", "rights": "view"})
    assert (said(own), own.json()["field"]) == ((409, "yourself"), "email")
    moved = Caller(cast.dana).post(path, body).json()["results"]
    assert [(one["name"], one["owner"]) for one in moved] == [("data", "bob@example.com")]
    assert alice.get(folder).status_code == 404
    cast.charlie.role = "admin"
    cast.charlie.save()
    assert said(Caller(cast.charlie).post(path, body)) == (404, "unknown-person")


def test_a_token_needs_the_scope(cast: Cast, files: FakeFileServer) -> None:
    _, text = create_token(cast.alice, "runs", scopes=["read", "sessions"])
    script = Caller(cast.alice)
    script._client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {text}"
    assert said(script.post(FOLDERS, {"name": "data"})) == (403, "token-scope")
    assert script.get(FOLDERS).status_code == 200


def test_storage_hosts_are_written_by_superadmins(cast: Cast, alice: Caller) -> None:
    dana = Caller(cast.dana)
    (shown,) = alice.get(HOSTS).json()["results"]
    assert shown.keys() == {
        "id", "name", "title", "is_enabled", "is_default", "quota_mode", "free_bytes", "is_reachable", "fault_since",
    }  # fmt: skip
    assert (shown["is_reachable"], shown["fault_since"]) == (True, None)
    StorageHost.objects.update(fault="gone", fault_since=datetime(2030, 1, 2, tzinfo=UTC))
    (shown,) = alice.get(HOSTS).json()["results"]
    assert (shown["is_reachable"], shown["fault_since"]) == (False, "2030-01-02T00:00:00Z")
    StorageHost.objects.update(fault="", fault_since=None)
    assert alice.post(HOSTS, {"name": "mine", "address": "http://x:1"}).status_code == 403
    made = dana.post(HOSTS, {"name": "scratch", "address": "http://10.0.0.1:8093", "is_default": True}).json()
    assert [(one["name"], one["is_default"]) for one in dana.get(HOSTS).json()["results"]] == [
        ("local", False), ("scratch", True),
    ]  # fmt: skip
    path = f"{HOSTS}{made['id']}/"
    assert said(dana.post(HOSTS, {"name": "scratch", "address": "http://x:1"})) == (409, "name-taken")
    for body, field in (({"address": "ftp://x"}, "address"), ({"name": "other"}, "name")):
        assert patch(dana, path, body).json()["field"] == field
    assert patch(dana, path, {"title": "Fast", "is_enabled": False}).json()["title"] == "Fast"
    assert alice.get(path).status_code == 404
    assert dana.delete(path).status_code == 204


def test_a_storage_host_with_folders_stays(cast: Cast, folder: str) -> None:
    dana = Caller(cast.dana)
    path = f"{HOSTS}{StorageHost.objects.get().pk}/"
    answer = dana.delete(path)
    assert (said(answer), answer.json()["data"]["folders"]) == ((409, "storage-host-in-use"), 1)
