"""The explorer: what lies in a folder, changes of it, and the way to its bytes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from backendai.base.paths.path_texts import bytes_of, encode_raw, text_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.file_origins import file_host, file_origin, read_file_code
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.storage.status import FolderStatus, Rights
from backendai.portal.web.folders.paths import directory_of, entry_in, inside, moved_to, name_of, path_in, places_of
from tests.cast import Cast
from tests.factories import make_agent, make_session
from tests.mount_tools import storage_host
from tests.pages import markup
from tests.storage.fake_file_server import FakeFileServer
from tests.web.conftest import HTMX


def text(answer: Any) -> str:
    return str(markup(answer))


def page(folder: Folder, name: str = "folder") -> str:
    return reverse(f"web:{name}", args=[folder.pk])


def fill(files: FakeFileServer, folder: Folder, **entries: str) -> None:
    files.folders[str(folder.pk)]["files"] |= entries


def share(folder: Folder, cast: Cast, rights: Rights) -> None:
    FolderGrant.objects.create(folder=folder, user=cast.bob, rights=rights, accepted_at=timezone.now())


def test_it_shows_what_is_there_and_whom_it_belongs_to(
    data: Folder, files: FakeFileServer, alice: Client, bob: Client, cast: Cast
) -> None:
    fill(files, data, **{"a b.txt": "file", "sub": "directory"})
    shown = text(alice.get(page(data)))
    assert 'href="' + page(data, "folder_file") + '?path=a%20b.txt"' in shown
    assert 'href="' + page(data) + '?path=sub"' in shown
    assert "Upload files" in shown
    share(data, cast, Rights.VIEW)
    shown = text(bob.get(page(data)))
    assert "a b.txt" in shown
    assert "Upload files" not in shown and "data-rename" not in shown and 'id="new-directory"' not in shown


def test_it_says_since_when_the_folder_cannot_be_reached(data: Folder, host: StorageHost, alice: Client) -> None:
    agents = [make_agent(f"gpu{number}") for number in (1, 2)]
    storage_host(host.name, *agents)
    now = timezone.now()
    since = now - timedelta(hours=2)
    look = lambda: re.sub("[\u2068\u2069]", "", text(alice.get(page(data))))  # noqa: E731  (without marks of direction)
    assert "reachable</strong>" not in look()
    Agent.objects.filter(pk=agents[0].pk).update(status=Agent.Status.LOST, lost_at=now - timedelta(hours=9))
    assert "reachable</strong>" not in look()
    Agent.objects.filter(pk=agents[1].pk).update(status=Agent.Status.LOST, lost_at=since)
    shown = look()
    assert f"No agent that mounts folders of {host.name} is reachable</strong> since" in shown
    assert f'<time datetime="{since.isoformat()}" data-exact="short">' in shown
    StorageHost.objects.update(fault="It does not answer.", fault_since=since)
    shown = look()
    assert f"Storage host {host.name} is unreachable</strong> since <time" in shown and "It does not answer." in shown
    assert f'<time datetime="{since.isoformat()}" data-exact="short">' in shown and "No agent" not in shown
    StorageHost.objects.update(fault_since=None)  # it was faulty before this was written
    assert f"Storage host {host.name} is unreachable.</strong>" in look()


def test_a_look_brings_the_size_that_the_folder_has_now(data: Folder, files: FakeFileServer, alice: Client) -> None:
    Folder.objects.update(used_bytes=5, used_files=1, measured_at=timezone.now() - timedelta(hours=1))
    told = {"bytes": 3 * 2**20, "files": 2, "at": timezone.now().timestamp()}
    files.folders[str(data.pk)] |= {"size": told}
    part = text(alice.get(page(data), **HTMX))
    assert 'id="folder-size" hx-swap-oob="true"' in part and "3 MiB" in part and "<html" not in part
    whole = text(alice.get(page(data)))
    assert "3 MiB" in whole and "hx-swap-oob" not in whole
    files.folders[str(data.pk)]["size"] = told | {"bytes": 1, "at": 1.0}
    alice.get(page(data))
    assert Folder.objects.get().used_bytes == 3 * 2**20, "older than what is known"


def test_its_scripts_may_reach_the_origin_of_its_own_files_only(data: Folder, alice: Client) -> None:
    policy = alice.get(page(data))["Content-Security-Policy"]
    parts = {part.split()[0]: part.split()[1:] for part in policy.split("; ")}
    assert file_origin(data.pk) in parts["connect-src"] and file_origin(data.pk) in parts["form-action"]
    assert "blob:" in parts["img-src"]
    assert parts["script-src"] == ["'self'"]
    assert file_host(data.pk) not in alice.get("/folders/")["Content-Security-Policy"]


def test_htmx_gets_the_entries_alone(data: Folder, files: FakeFileServer, alice: Client) -> None:
    fill(files, data, one="file")
    shown = text(alice.get(page(data), **HTMX))
    assert "one" in shown and "<html" not in shown


@pytest.mark.parametrize(("status", "code"), [(404, "not-found"), (507, "disk-full"), (503, "storage-missing")])
def test_a_fault_of_the_file_server_is_said_on_the_page(
    data: Folder, files: FakeFileServer, alice: Client, status: int, code: str
) -> None:
    files.refuses = (status, code)
    answer = alice.get(page(data))
    assert (answer.status_code, f"It is {code}." in text(answer)) == (200, True)


def test_nothing_can_be_uploaded_while_the_storage_host_is_unreachable(
    data: Folder, files: FakeFileServer, alice: Client
) -> None:
    writers = re.compile(r"<button[^>]* data-writes [^>]*>")
    reason = re.compile(r'id="host-away"( hidden)?>The storage host is unreachable')

    def look() -> tuple[int, int, bool]:
        shown = text(alice.get(page(data)))
        found, (is_hidden,) = writers.findall(shown), reason.findall(shown)
        return len(found), sum(" disabled" in one for one in found), not is_hidden

    assert look() == (4, 0, False)
    files.refuses = (404, "not-found")
    assert look() == (4, 0, False), "only the directory is gone"
    files.refuses = (503, "storage-missing")
    assert look() == (4, 4, True)
    assert " data-away>" in text(alice.get(page(data), **HTMX)), "the page that is open hears of it"


def test_a_folder_in_the_trash_shows_no_files(data: Folder, files: FakeFileServer, alice: Client) -> None:
    Folder.objects.update(status=FolderStatus.TRASHED)
    before = len(files.asked)
    assert "in the trash" in text(alice.get(page(data)))
    assert len(files.asked) == before


def test_changes_go_to_the_file_server_with_the_right_to_edit(
    data: Folder, files: FakeFileServer, alice: Client
) -> None:
    alice.post(page(data, "folder_make_directory"), {"place": "sub", "name": "new"})
    alice.post(page(data, "folder_rename_entry"), {"source": "sub/new", "name": "newer"})
    alice.post(page(data, "folder_move"), {"place": "sub", "target": "/other/", "path": ["sub/newer"]})
    answer = alice.post(page(data, "folder_delete"), {"place": "other", "path": ["other/newer", "other/x"]})
    assert answer["Location"] == f"{page(data)}?path=other"
    orders = zip(files.asked, files.bodies, strict=True)
    asked = [(path.rsplit("/", 1)[1], body) for (_, path, _, rights), body in orders if rights == "edit"]
    assert asked == [
        ("directories", {"path": "sub/new"}),
        ("moves", {"source": "sub/new", "target": "sub/newer", "overwrite": False, "keep_both": False}),
        ("moves", {"source": "sub/newer", "target": "other/newer", "overwrite": False, "keep_both": False}),
        ("deletions", {"paths": ["other/newer", "other/x"]}),
    ]


def test_a_move_asks_before_it_replaces_and_says_which_entries_moved(
    data: Folder, files: FakeFileServer, alice: Client
) -> None:
    files.taken = {"other/b"}
    form = {"place": "", "target": "other", "path": ["a", "b", "c"]}
    asked = text(alice.post(page(data, "folder_move"), form))
    assert "Moved to other. Done: a, c" in asked and "Replace what is there?" in asked
    fields = re.findall(r'name="(place|target|path)" value="([^"]*)"', asked)
    assert sorted(fields) == [("path", "b"), ("place", ""), ("target", "other")]
    answers = re.findall(r'name="overwrite" value="([^"]*)">([^<]*)<', asked)
    assert answers == [("both", "Keep both"), ("1", "Replace entries")]
    alice.post(page(data, "folder_move"), dict(fields) | {"overwrite": "1"})
    assert files.bodies[-1] == {"source": "b", "target": "other/b", "overwrite": True, "keep_both": False}


def test_a_name_cannot_hide_its_ending(data: Folder, files: FakeFileServer, alice: Client) -> None:
    files.folders[str(data.pk)]["files"] = {"photo-\u202egnp.exe": "file", "two\nlines": "file"}
    shown = text(alice.get(page(data)))
    assert "<bdi>photo-\ufffdgnp.exe</bdi>" in shown and "<bdi>two\ufffdlines</bdi>" in shown
    assert 'data-name="photo-\u202egnp.exe"' in shown  # it can be renamed


def test_the_storage_host_chooses_the_number_when_both_entries_are_kept(
    data: Folder, files: FakeFileServer, alice: Client
) -> None:
    files.taken = {"other/b", "sub/new", "1-a"}
    both = {"place": "", "target": "other", "path": ["a", "b"], "overwrite": "both"}
    assert "Moved to other." in text(alice.post(page(data, "folder_move"), both, follow=True))
    renaming = {"source": "sub/old", "name": "new", "overwrite": "both"}
    assert "Renamed to new (2)." in text(alice.post(page(data, "folder_rename_entry"), renaming, follow=True))
    restoring = {"verb": "restore", "item": "1-a", "name": "sub/gone", "overwrite": "both"}
    assert "Restored." in text(alice.post(page(data, "folder_change_bin"), restoring, follow=True))
    asked = [body for body in files.bodies if body and "keep_both" in body]
    assert [body.get("target") for body in asked] == ["other/a", "other/b", "sub/new", None]
    assert all(body["keep_both"] and not body["overwrite"] for body in asked)


def test_a_rename_and_a_restore_ask_before_they_replace(data: Folder, files: FakeFileServer, alice: Client) -> None:
    files.taken = {"sub/new", "1-a"}
    asked = text(alice.post(page(data, "folder_rename_entry"), {"source": "sub/old", "name": "new"}))
    assert "Replace what is there?" in asked and "<bdi>new</bdi>" in asked
    alice.post(page(data, "folder_rename_entry"), {"source": "sub/old", "name": "new", "overwrite": "1"})
    assert files.bodies[-1] == {"source": "sub/old", "target": "sub/new", "overwrite": True, "keep_both": False}
    restore = {"verb": "restore", "item": "1-a", "name": "sub/gone"}
    asked = text(alice.post(page(data, "folder_change_bin"), restore))
    assert "<bdi>sub/gone</bdi>" in asked and "Keep both" in asked
    alice.post(page(data, "folder_change_bin"), restore | {"overwrite": "1"})
    assert files.bodies[-1] == {"overwrite": True, "keep_both": False}


def test_a_move_that_a_silent_host_ends_names_what_did_not_move(
    data: Folder, files: FakeFileServer, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = files.answer

    def fall_silent(method: str, path: str, query: Any, body: Any, token: str) -> tuple[int, Any]:
        if body and body.get("source") == "b":
            return 503, {"code": "storage-silent", "message": "It does not answer."}
        return answer(method, path, query, body, token)

    monkeypatch.setattr(files, "answer", fall_silent)
    form = {"place": "", "target": "other", "path": ["a", "b", "c"]}
    told = text(alice.post(page(data, "folder_move"), form, follow=True))
    assert "Done: a" in told and "Not done: b, c." in told


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_a_name_that_is_no_name_is_refused(data: Folder, files: FakeFileServer, alice: Client, name: str) -> None:
    before = len(files.asked)
    answer = alice.post(page(data, "folder_make_directory"), {"name": name}, follow=True)
    assert "A name has at least one character and no" in text(answer)
    assert not [one for one in files.asked[before:] if one[0] == "POST"]


def test_who_may_only_view_changes_nothing(
    data: Folder, files: FakeFileServer, bob: Client, alice: Client, cast: Cast
) -> None:
    share(data, cast, Rights.VIEW)
    before = len(files.asked)
    for name, form in (("folder_delete", {"path": ["a"]}), ("folder_make_directory", {"name": "a"})):
        assert "You may not change files of" in text(bob.post(page(data, name), form, follow=True))
    bob.post(page(data, "folder_change_bin"), {"verb": "empty"})
    assert {one[3] for one in files.asked[before:]} == {"view"}
    assert bob.get(page(data, "folder_sharing")).status_code == 404
    assert bob.post(page(data, "folder_settings"), {"name": "his"}).status_code == 200
    assert Folder.objects.get().name == "data"


def test_the_trash_of_the_folder_is_restored_and_emptied(data: Folder, files: FakeFileServer, alice: Client) -> None:
    assert "No deleted files" in text(alice.get(page(data, "folder_bin")))
    before = len(files.asked)
    alice.post(page(data, "folder_change_bin"), {"verb": "restore", "item": "1-a"})
    alice.post(page(data, "folder_change_bin"), {"verb": "purge", "item": "1-a"})
    alice.post(page(data, "folder_change_bin"), {"verb": "empty"})
    alice.post(page(data, "folder_change_bin"), {"verb": "nonsense"})
    ends = [(one[0], one[1].partition("/trash")[2]) for one in files.asked[before:]]
    assert ends == [("POST", "/1-a/restore"), ("DELETE", "/1-a"), ("DELETE", "")]
    assert alice.post(page(data, "folder_change_bin"), {"verb": "purge", "item": "../x"}).status_code == 404


def test_the_code_for_the_files_is_the_persons_own(data: Folder, alice: Client, cast: Cast) -> None:
    entry = alice.post(page(data, "folder_enter"), headers={"host": "Portal.localhost:8080"}).json()
    assert entry["url"] == f"{file_origin(data.pk)}/.backendai/enter"
    claims = read_file_code(entry["code"], timezone.now())
    assert (claims.user_id, claims.folder_id, claims.portal) == (cast.alice.pk, data.pk, "portal.localhost:8080")
    assert alice.get(page(data, "folder_enter")).status_code == 405
    assert Client().post(page(data, "folder_enter")).status_code == 302


@pytest.mark.parametrize(
    ("query", "way_on"),
    [
        ("?path=a%26b", "/content?path=a%26b"),
        ("?path=a&as=zip", "/archive?path=a&amp;format=zip"),
        ("?path=a&as=shown", "/content?path=a&amp;inline=1"),
        ("?path=../../x", "/content?path=x"),
    ],
)
def test_a_link_leads_on_without_scripts(data: Folder, alice: Client, query: str, way_on: str) -> None:
    assert f'name="next" value="{way_on}"' in text(alice.get(page(data, "folder_lead") + query))


def test_a_file_says_while_which_session_it_changed(
    data: Folder, files: FakeFileServer, alice: Client, cast: Cast
) -> None:
    fill(files, data, log="file")
    changed = datetime.fromtimestamp(1.0, UTC)  # of every entry of this file server
    for name, start, end, rights in (
        ("train-7", -60, 60, Rights.EDIT),
        ("before", -60, -30, Rights.EDIT),
        ("reader", -60, 60, Rights.VIEW),
    ):
        session = make_session(cast.alice, name=name)
        type(session).objects.filter(pk=session.pk).update(started_at=changed + timedelta(seconds=start))
        SessionMount.objects.create(
            session=session, folder=data, folder_name="data", target="/x", rights=rights,
            released_at=changed + timedelta(seconds=end),
        )  # fmt: skip
    (entry,) = alice.get(page(data)).context["entries"]
    assert (entry["change"].name, entry["change"].others) == ("train-7", 0)
    SessionMount.objects.filter(session__name="before").update(sub_path="elsewhere", released_at=None)
    (entry,) = alice.get(page(data)).context["entries"]
    assert (entry["change"].name, entry["change"].others) == ("train-7", 0)
    SessionMount.objects.update(sub_path="")
    answer = alice.get(page(data))
    (entry,) = answer.context["entries"]
    assert entry["change"].others == 1
    assert "ran, or another session" in text(answer)


def test_a_large_directory_takes_no_more_queries_than_a_small_one(
    data: Folder, files: FakeFileServer, alice: Client, cast: Cast
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as found:
            alice.get(page(data))
        return len(found)

    count()
    few = count()
    fill(files, data, **{f"file-{number}": "file" for number in range(50)})
    SessionMount.objects.create(
        session=make_session(cast.alice), folder=data, folder_name="data", target="/x", rights=Rights.EDIT
    )
    assert count() == few


def test_paths_stay_inside() -> None:
    assert path_in("/../a//./b/\0c/") == "a/b/c"
    assert places_of("a/b") == [("a", "a"), ("b", "a/b")]
    assert places_of("") == []


def test_paths_that_are_not_utf8_stay_what_they_are() -> None:
    name = b"caf\xe9"
    top = entry_in("", {"name": "caf?", "raw": encode_raw(name)})
    below = entry_in(top, {"name": "x y"})
    assert (bytes_of(top), bytes_of(below)) == (name, name + b"/x y")
    assert path_in(below) == below and name_of(top) == "caf\N{REPLACEMENT CHARACTER}"
    assert (directory_of(below), directory_of(top), inside("", "a")) == (top, "", "a")
    assert moved_to("sub", below) == "sub/x y" and bytes_of(moved_to("sub", top)) == b"sub/" + name
    assert [path for _, path in places_of(below)] == [top, below]
    assert path_in("//raw:!") == "" and path_in(text_of(b"../\xff/..")) == text_of(b"\xff")
    assert path_in(f"{top}/plain") == text_of(name + b"/plain")


def test_what_is_not_utf8_is_shown_downloaded_renamed_and_deleted(
    data: Folder, files: FakeFileServer, alice: Client
) -> None:
    fill(files, data, **{"caf\udce9": "file"})
    told = text_of(b"caf\xe9")
    shown = text(alice.get(page(data)))
    assert f'value="{told}"' in shown and f'data-rename="{told}"' in shown and "not UTF-8" in shown
    assert f'data-download="/content?path={quote(told, safe="")}"' in shown
    assert alice.get(page(data, "folder_file"), {"path": told}).context["path"] == told
    alice.post(page(data, "folder_rename_entry"), {"source": told, "name": "café"})
    alice.post(page(data, "folder_delete"), {"path": [told]})
    moved = {"source": told, "target": "café", "overwrite": False, "keep_both": False}
    assert moved in files.bodies and {"paths": [told]} in files.bodies
    inner = text(alice.get(page(data), {"path": told}))
    assert "rename it before you upload" in inner and 'id="upload"' not in inner
