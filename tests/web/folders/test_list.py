"""The list of folders: what it shows, creating, invitations, the trash."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import Membership, ResourcePolicy, User
from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import create_folder, share_folder, trash_folder
from backendai.domain.storage.status import FolderStatus, Rights
from tests.cast import Cast
from tests.factories import make_session
from tests.storage.fake_file_server import FakeFileServer
from tests.web.conftest import HTMX

LIST = "/folders/"


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_it_shows_ones_own_those_of_projects_and_shared_ones_and_no_others(
    cast: Cast, data: Folder, host: StorageHost, alice: Client, bob: Client, browse: Callable[[User], Client]
) -> None:
    now = timezone.now()
    Membership.objects.filter(user=cast.alice).update(role=Membership.Role.ADMIN)
    create_folder(cast.alice, name="team", host=host, project=cast.project, now=now)
    assert {"data", "team"} == {row.name for row in alice.get(LIST).context["page"]}
    assert [row.name for row in bob.get(LIST).context["page"]] == ["team"]
    assert list(browse(cast.charlie).get(LIST).context["page"]) == []
    assert list(browse(cast.dana).get(f"{LIST}?kind=own").context["page"]) == []
    share_folder(data, cast.alice, "bob@example.com", Rights.VIEW, now=now)
    invited = bob.get(LIST)
    assert "data" in text(invited) and [row.name for row in invited.context["page"]] == ["team"]
    (grant,) = invited.context["invitations"]
    bob.post(reverse("web:folder_invitation", args=[grant.pk]), {"answer": "accept"})
    numbers = {tab.kind: tab.number for tab in bob.get(LIST).context["tabs"]}
    assert numbers == {"": 2, "own": 0, "shared": 1, "project": 1}
    assert [row.name for row in bob.get(f"{LIST}?kind=shared").context["page"]] == ["data"]


def test_a_person_sees_the_actions_that_their_rights_allow(
    cast: Cast, data: Folder, alice: Client, bob: Client
) -> None:
    grant = share_folder(data, cast.alice, "bob@example.com", Rights.EDIT, now=timezone.now())
    bob.post(reverse("web:folder_invitation", args=[grant.pk]), {"answer": "accept"})
    managing = ("Edit settings", "Move selected to the trash", 'name="folder"')
    assert all(words in text(alice.get(LIST)) for words in managing)
    shown = text(bob.get(LIST))
    assert "Show details" in shown and not any(words in shown for words in managing)
    page = reverse("web:folder_settings", args=[data.pk])
    assert "Settings and usage" in text(alice.get(page))
    assert "Details and usage" in text(bob.get(page)) and "Leave folder" in text(bob.get(page))


def test_declining_an_invitation_removes_it(cast: Cast, data: Folder, bob: Client) -> None:
    share_folder(data, cast.alice, "bob@example.com", Rights.VIEW, now=timezone.now())
    (grant,) = bob.get(LIST).context["invitations"]
    bob.post(reverse("web:folder_invitation", args=[grant.pk]), {"answer": "decline"})
    assert not data.grants.exists()
    assert bob.post(reverse("web:folder_invitation", args=[grant.pk])).status_code == 404


def test_it_is_searched_and_sorted(cast: Cast, data: Folder, host: StorageHost, alice: Client) -> None:
    for name, size in (("alpha", 30), ("beta", 20)):
        folder = create_folder(cast.alice, name=name, host=host, now=timezone.now())
        Folder.objects.filter(pk=folder.pk).update(used_bytes=size)
    names = lambda query: [row.name for row in alice.get(LIST + query, **HTMX).context["page"]]  # noqa: E731
    assert names("") == ["alpha", "beta", "data"]
    assert names("?sort=-size") == ["alpha", "beta", "data"]
    assert names("?sort=size") == ["beta", "alpha", "data"]
    assert names("?q=ta") == ["beta", "data"]
    assert names("?sort=nonsense&kind=nonsense&page=99") == ["alpha", "beta", "data"]


def test_it_is_narrowed_by_use_and_says_what_is_left_and_what_is_away(
    cast: Cast, data: Folder, host: StorageHost, alice: Client
) -> None:
    for name, usage in ((".cache", "general"), ("weights", "model")):
        create_folder(cast.alice, name=name, usage=usage, host=host, now=timezone.now())
    names = lambda query: [row.name for row in alice.get(LIST + query, **HTMX).context["page"]]  # noqa: E731
    assert names("?only=model") == ["weights"]
    assert names("?only=automatic") == [".cache"]
    assert names("?only=general&kind=own") == [".cache", "data"]
    User.objects.filter(pk=cast.alice.pk).update(policy=ResourcePolicy.objects.create(name="few", max_folders=7))
    page = text(alice.get(LIST))
    assert "3 of 7" in page and "unreachable" not in page
    StorageHost.objects.update(fault="The share is gone.", fault_since=timezone.now())
    page = text(alice.get(LIST))
    assert page.count("unreachable since <time") == page.count(">The share is gone.<") == 3
    assert "unreachable since <time" in text(alice.get("/sessions/new/?step=3"))


def test_a_folder_without_a_limit_counts_with_its_size(
    cast: Cast, data: Folder, host: StorageHost, alice: Client
) -> None:
    limited = create_folder(cast.alice, name="limited", host=host, limit_bytes=5 * 2**30, now=timezone.now())
    Folder.objects.filter(pk=data.pk).update(used_bytes=3 * 2**30)
    Folder.objects.filter(pk=limited.pk).update(used_bytes=2**30)
    policy = ResourcePolicy.objects.create(name="some", max_folder_bytes=20 * 2**30)
    User.objects.filter(pk=cast.alice.pk).update(policy=policy)
    page = re.sub("[\u2068\u2069]", "", text(alice.get(LIST))).replace("\xa0", " ")  # without marks of direction
    assert "8 GiB of 20 GiB" in page and "or with its size if it has no limit." in page
    assert "They take 8 GiB of 20 GiB" in page and "limits add up" not in page and "Sum of their limits" not in page


def test_many_are_trashed_and_restored_at_once_and_those_that_stay_say_why(
    cast: Cast, data: Folder, host: StorageHost, alice: Client, bob: Client
) -> None:
    other, used = (create_folder(cast.alice, name=name, host=host, now=timezone.now()) for name in ("other", "used"))
    SessionMount.objects.create(
        session=make_session(cast.alice), folder=used, folder_name="used", target="/x", rights=Rights.EDIT
    )
    many, ids = reverse("web:folders_many"), [str(one.pk) for one in (data, other, used)]
    bob.post(many, {"verb": "trash", "folder": ids})
    assert set(Folder.objects.values_list("status", flat=True)) == {FolderStatus.READY}
    told = text(alice.post(many, {"verb": "trash", "folder": [*ids, "nonsense"]}, follow=True))
    assert "In the trash: data, other." in told and "used stays where it is." in told and "is mounted by" in told
    told = text(alice.post(many, {"verb": "restore", "folder": ids[:2]}, follow=True))
    assert "Restored: data, other." in told
    assert set(Folder.objects.values_list("status", flat=True)) == {FolderStatus.READY}
    assert "Select at least one folder." in text(alice.post(many, {"verb": "trash"}, follow=True))


def test_an_administrator_transfers_the_folders_of_one_person(
    cast: Cast, data: Folder, alice: Client, browse: Callable[[User], Client]
) -> None:
    page = reverse("manage:folder-transfer")
    assert alice.get(page).status_code == 404
    User.objects.filter(pk=cast.dana.pk).update(role=User.Role.SUPERADMIN)
    client = browse(User.objects.get(pk=cast.dana.pk))
    assert "alice@example.com" in text(client.get(page, {"from": "alice@example.com"}))
    wrong = client.post(page, {"from_email": cast.alice.email, "to_email": "nobody@example.com"})
    assert wrong.status_code == 422 and "You manage nobody with this address." in text(wrong)
    same = client.post(page, {"from_email": cast.alice.email, "to_email": cast.alice.email})
    assert list(same.context["form"].errors) == ["to_email"]
    form = {"from_email": cast.alice.email, "to_email": cast.bob.email}
    assert client.post(page, form)["Location"] == reverse("manage:folders")
    data.refresh_from_db()
    assert data.user == cast.bob


def test_many_folders_take_no_more_queries_than_few(cast: Cast, data: Folder, host: StorageHost, alice: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            alice.get(LIST)
        return len(found)

    alice.get(LIST)
    few = count()
    for number in range(6):
        folder = create_folder(cast.alice, name=f"more-{number}", host=host, now=timezone.now())
        SessionMount.objects.create(
            session=make_session(cast.alice), folder=folder, folder_name="x", target="/x", rights=Rights.EDIT
        )
    assert count() == few


def test_a_folder_is_created_with_its_limit(cast: Cast, host: StorageHost, alice: Client) -> None:
    form = {"name": "new", "host": host.pk, "usage": "general", "limit_bytes": "2 GiB"}
    answer = alice.post(reverse("web:folder_new"), form)
    folder = Folder.objects.get(name="new")
    assert (answer.status_code, answer["Location"]) == (302, reverse("web:folder", args=[folder.pk]))
    assert (folder.user, folder.limit_bytes, folder.status) == (cast.alice, 2 * 2**30, FolderStatus.READY)
    in_dialog = alice.post(reverse("web:folder_new"), form | {"name": "other"}, headers={"hx-request": "true"})
    assert in_dialog["HX-Redirect"] == reverse("web:folder", args=[Folder.objects.get(name="other").pk])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "-x"}, "begin"),
        ({"limit_bytes": "much"}, "not a size"),
        ({"limit_bytes": "20"}, "20 without a unit means bytes."),
        ({"name": ""}, "required"),
        ({"host": ""}, "required"),
    ],
)
def test_what_is_wrong_with_a_new_folder_is_said_at_its_field(
    host: StorageHost, alice: Client, wrong: dict[str, str], said: str
) -> None:
    form = {"name": "new", "host": str(host.pk), "usage": "general", "limit_bytes": ""} | wrong
    answer = alice.post(reverse("web:folder_new"), form)
    assert answer.status_code == 422
    assert said in str(answer.context["form"].errors)
    in_dialog = alice.post(reverse("web:folder_new"), form, headers={"hx-request": "true"})
    part = in_dialog.content.decode()
    assert in_dialog.status_code == 200 and part.lstrip().startswith("<form") and said in part and "autofocus" in part
    assert not Folder.objects.exists()


def test_a_folder_of_the_trash_is_restored_or_deleted_after_its_name_was_typed(
    cast: Cast, data: Folder, alice: Client, bob: Client
) -> None:
    trash_folder(data, cast.alice, now=timezone.now())
    assert [data] == alice.get(reverse("web:folders_trash")).context["rows"]
    assert bob.get(reverse("web:folders_trash")).context["rows"] == []
    alice.post(reverse("web:folder_state", args=[data.pk, "restore"]))
    data.refresh_from_db()
    assert data.status == FolderStatus.READY
    alice.post(reverse("web:folder_state", args=[data.pk, "trash"]))
    alice.post(reverse("web:folder_purge", args=[data.pk]), {"typed": "dat"})
    assert Folder.objects.get().status == FolderStatus.TRASHED
    alice.post(reverse("web:folder_purge", args=[data.pk]), {"typed": "data"})
    assert Folder.objects.get().status in (FolderStatus.DELETING, FolderStatus.DELETED)


def test_a_mounted_folder_stays_out_of_the_trash(cast: Cast, data: Folder, alice: Client) -> None:
    session = make_session(cast.alice, name="train-7")
    SessionMount.objects.create(session=session, folder=data, folder_name="data", target="/x", rights=Rights.EDIT)
    answer = alice.post(reverse("web:folder_state", args=[data.pk, "trash"]), follow=True)
    assert "train-7" in text(answer)
    assert Folder.objects.get().status == FolderStatus.READY
    assert "train-7" in text(alice.get(LIST))


def test_nobody_acts_on_folders_of_others(data: Folder, bob: Client, files: FakeFileServer) -> None:
    before = list(files.asked)
    for name in ("folder", "folder_file", "folder_bin", "folder_sharing", "folder_settings", "folder_lead"):
        assert bob.get(reverse(f"web:{name}", args=[data.pk])).status_code == 404
    for name in (
        "folder_enter",
        "folder_delete",
        "folder_move",
        "folder_rename_entry",
        "folder_clone",
        "folder_change_bin",
    ):
        assert bob.post(reverse(f"web:{name}", args=[data.pk])).status_code == 404
    for verb in ("trash", "restore", "retry", "leave"):
        assert bob.post(reverse("web:folder_state", args=[data.pk, verb])).status_code == 404
    assert files.asked == before


def test_the_address_of_files_leads_to_the_folder(data: Folder, alice: Client, bob: Client) -> None:
    address = reverse("web:folder_by_digits", args=[data.pk.hex[:12]])
    assert alice.get(address)["Location"] == reverse("web:folder", args=[data.pk])
    assert bob.get(address).status_code == 404
