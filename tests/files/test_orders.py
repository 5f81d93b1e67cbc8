"""Orders of the portal: folders that are made, changed, linked, cloned, measured, deleted; and who may order what."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from backendai.base.paths.storage_layout import folder_path
from backendai.base.wire.folder_tickets import sign_folder_ticket
from backendai.base.wire.tickets import new_private_key
from backendai.files.entries.tree import Size
from backendai.files.folders import sweeping
from backendai.files.folders.lifecycle import ABSENT, CLONING, READY
from backendai.files.http import manage as manage_views
from tests.files.conftest import PRIVATE_KEY, Portal, prepare, running, settings_for

pytestmark = pytest.mark.asyncio
HOST = UUID(int=0)


async def order(portal: Portal, method: str, path: str = "", status: int = 200, **more: Any) -> Any:
    return await portal.json(method, path, status, rights="manage", **more)


async def until_state(portal: Portal, state: str, folder_id: UUID | None = None) -> Any:
    while (told := await order(portal, "GET", folder_id=folder_id))["state"] != state or told["progress"]:
        await asyncio.sleep(0.01)  # the test's own limit ends this
    return told


async def test_a_folder_is_made_once(portal: Portal) -> None:
    told = await order(portal, "GET")
    assert (told["state"], told["version"], told["error"], told["progress"]) == (READY, 1, None, None)
    (portal.data / "f").write_text("x")
    await order(portal, "PUT", "", 201, version=3, json={"meta": {"name": "renamed", "usage": "general"}, "limit": 5})
    meta = json.loads((portal.data.parent / "meta.json").read_text())
    assert (meta["name"], meta["version"], meta["limit"], meta["more"]) == ("renamed", 3, 5, {"usage": "general"})
    assert (portal.data / "f").exists()
    assert sorted(os.listdir(portal.data.parent)) == ["data", "incoming", "meta.json", "trash"]
    other = uuid.uuid4()
    assert (await order(portal, "GET", folder_id=other))["state"] == ABSENT
    assert (await portal.json("GET", "/entries", 404, folder_id=other))["code"] == "no-folder"


async def test_a_folder_that_is_ordered_many_times_at_once_is_made_once(portal: Portal) -> None:
    for _ in range(10):
        folder = uuid.uuid4()
        orders = (order(portal, "PUT", "", 201, folder_id=folder, version=1, json={"meta": {}}) for _ in range(8))
        await asyncio.gather(*orders)
        assert (await order(portal, "GET", folder_id=folder))["state"] == READY


async def test_orders_that_are_older_than_the_last_are_refused(portal: Portal) -> None:
    await order(portal, "PUT", "/limit", version=5, json={"bytes": 10})
    for method, path, body in (
        ("PUT", "", {}),
        ("PUT", "/meta", {"meta": {"name": "x"}}),
        ("PUT", "/limit", {"bytes": None}),
        ("DELETE", "", None),
        ("PUT", "/link", {"path": "/none"}),
    ):
        refusal = await portal.ask(method, path, rights="manage", version=4, json=body)
        content = await refusal.json()
        if path != "/link":
            assert (refusal.status, content["code"], content["version"]) == (409, "stale-version", 5), path
    assert (await order(portal, "GET"))["limit"] == 10


async def test_a_folder_is_deleted_only_by_an_order_newer_than_all_it_has_seen(portal: Portal) -> None:
    await order(portal, "PUT", "/meta", version=5, json={"meta": {"name": "restored"}})
    refusal = await portal.ask("DELETE", "", rights="manage", version=5)
    assert (refusal.status, (await refusal.json())["code"]) == (409, "stale-version")
    assert portal.data.exists()
    await order(portal, "DELETE", "", 202, version=6)
    assert not portal.data.exists()


async def test_a_folder_is_gone_at_once_and_removed_afterwards(portal: Portal) -> None:
    (portal.data / "a/b").mkdir(parents=True)
    (portal.data / "a/b/f").write_text("x")
    assert (await order(portal, "DELETE", "", 202))["state"] in ("deleting", "absent")
    await portal.json("GET", "/entries", 404)
    await until_state(portal, ABSENT)
    assert not folder_path(portal.root, portal.folder_id).exists()
    await order(portal, "DELETE", "", 202)  # again is no error


async def test_a_removal_that_was_cut_off_goes_on_after_a_restart(root: Path) -> None:
    deep = root / ".deleting" / f"{uuid.uuid4()}-0000aaaa"
    deep.mkdir(parents=True)
    descriptor = os.open(deep, os.O_RDONLY)
    for _ in range(300):  # deeper than a path can name
        os.mkdir("d" * 100, dir_fd=descriptor)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    (deep / "link").symlink_to(root)
    os.chmod(deep / ("d" * 100), 0)
    async with running(settings_for(root)):
        while os.listdir(root / ".deleting"):
            await asyncio.sleep(0.01)
    assert (root / ".backendai-storage.json").exists()


async def test_a_clone_appears_when_it_is_whole(portal: Portal, each_way: str) -> None:
    (portal.data / "sub").mkdir()
    (portal.data / "sub/f").write_bytes(os.urandom(100_000))
    (portal.data / "link").symlink_to("sub/f")
    os.chmod(portal.data / "sub/f", 0o750)
    os.mkfifo(portal.data / "pipe")
    target = uuid.uuid4()
    body = {"source": str(portal.folder_id), "meta": {"name": "clone"}}
    assert (await order(portal, "POST", "/clones", 202, folder_id=target, json=body))["state"] == CLONING
    await until_state(portal, READY, target)
    data = folder_path(portal.root, target) / "data"
    assert (data / "sub/f").read_bytes() == (portal.data / "sub/f").read_bytes()
    assert (data / "sub/f").stat().st_mode & 0o777 == 0o750
    assert (data / "sub/f").stat().st_mtime_ns == (portal.data / "sub/f").stat().st_mtime_ns
    assert os.readlink(data / "link") == "sub/f"
    assert not (data / "pipe").exists()
    assert (await order(portal, "POST", "/clones", 409, folder_id=target, json=body))["code"] == "exists"


async def test_a_clone_that_was_cut_off_is_completed_after_a_restart(root: Path) -> None:
    async with running(settings_for(root)) as portal:
        source = await portal.create()
        for number in range(20):
            (portal.data / str(number)).write_text(str(number))
    target = uuid.uuid4()
    half = root / ".staging" / str(target)
    for name in ("data", "incoming", "trash"):
        (half / name).mkdir(parents=True)
    meta = {"id": str(target), "version": 2, "cloned_from": str(source)}
    (half / "meta.json").write_text(json.dumps(meta))
    (half / "data/3").write_text("half a file, without its time")
    async with running(settings_for(root)) as portal:
        await until_state(portal, READY, target)
    data = folder_path(root, target) / "data"
    assert {name: (data / name).read_text() for name in os.listdir(data)} == {str(n): str(n) for n in range(20)}


async def test_a_clone_whose_source_is_lost_vanishes_and_says_why(root: Path) -> None:
    target = uuid.uuid4()
    half = root / ".staging" / str(target)
    (half / "data").mkdir(parents=True)
    meta = {"id": str(target), "version": 2, "cloned_from": str(uuid.uuid4())}
    (half / "meta.json").write_text(json.dumps(meta))
    async with running(settings_for(root)) as portal:
        told = await until_state(portal, ABSENT, target)
        assert "not on this storage host" in told["error"]


@pytest.mark.parametrize(("body", "status"), [({}, 422), ({"source": "x"}, 422), ({"source": str(uuid.uuid4())}, 404)])
async def test_a_clone_of_nothing_is_refused(portal: Portal, body: Any, status: int) -> None:
    target = uuid.uuid4()
    await order(portal, "POST", "/clones", status, folder_id=target, json=body)
    assert (await order(portal, "GET", folder_id=target))["state"] == ABSENT


async def test_a_folder_is_measured_by_what_it_takes_from_the_disk(portal: Portal) -> None:
    (portal.data / "f").write_bytes(os.urandom(100_000))
    os.link(portal.data / "f", portal.data / "same")
    with (portal.data / "sparse").open("wb") as file:
        file.truncate(10**9)
    (portal.data / "d").mkdir()
    await portal.json("PUT", "/content?path=g", 201, data=os.urandom(50_000))
    os.sync()
    await order(portal, "POST", "/measurements", 202)
    while (told := await order(portal, "GET"))["measuring"] or told["size"] is None:
        await asyncio.sleep(0.01)
    assert told["size"]["files"] == 4
    assert 150_000 <= told["size"]["bytes"] < 400_000
    assert portal.server.ledger.written(portal.folder_id).bytes == 0


async def test_a_change_is_measured_soon_and_told_with_the_list_and_by_the_host(portal: Portal) -> None:
    portal.server.settled_after = 0.01
    headers = {"Authorization": f"Bearer {portal.ticket('manage', folder_id=HOST)}"}

    async def size() -> Any:
        return (await portal.json("GET", "/entries"))["folder_size"]

    assert await size() is None
    await portal.json("PUT", "/content?path=a", 201, data=os.urandom(10**6))
    # A measurement that is under way may see the bytes of the upload before its name; another one follows.
    while (told := await size()) is None or told["bytes"] < 10**6 or told["files"] < 1:
        await asyncio.sleep(0.01)
    assert told["files"] == 1
    (known,) = (await (await portal.client.get("/v1/host", headers=headers)).json())["measured"]
    assert known["id"] == str(portal.folder_id) and known["bytes"] >= 10**6
    await portal.json("POST", "/deletions", json={"paths": ["a"]})
    await portal.json("DELETE", "/trash", 202)
    while (await size())["bytes"] >= 10**6:
        await asyncio.sleep(0.01)


async def test_many_changes_are_measured_once_and_a_slow_folder_has_its_rest(portal: Portal) -> None:
    portal.server.settled_after = 0.01
    jobs, host, started = portal.client.app[manage_views.JOBS], portal.server.hosts["local"], []
    jobs._sizes["local", portal.folder_id] = Size(1, 1, 1.0), 3.0  # the last measurement took three seconds
    jobs.measure = lambda *one: started.append(one)
    await portal.json("PUT", "/content?path=a", 201, data=b"x")
    await asyncio.sleep(0.1)
    assert started == [] and len(jobs._soon) == 1
    other = await portal.create(uuid.uuid4())
    for _ in range(5):
        jobs.measure_soon(host, other)
    while not started:
        await asyncio.sleep(0.01)
    assert started == [(host, other)]


async def test_a_measurement_and_what_came_since_hold_a_folder_to_its_limit(portal: Portal) -> None:
    size = {"bytes": 900, "files": 1, "at": time.time(), "entries": 1}
    (portal.data.parent / "size.json").write_text(json.dumps(size))
    await order(portal, "PUT", "/limit", json={"bytes": 1000})
    await portal.json("PUT", "/content?path=a", 201, data=b"x" * 80)
    refusal = await portal.json("PUT", "/content?path=b", 507, data=b"x" * 30)
    assert (refusal["used"], refusal["limit"]) == (980, 1000)
    assert (await portal.json("POST", "/copies", 507, json={"source": "a", "target": "b"}))["code"] == "quota"
    target = uuid.uuid4()
    body = {"source": str(portal.folder_id), "limit": 100}
    await order(portal, "POST", "/clones", 507, folder_id=target, json=body)
    await order(portal, "PUT", "/limit", json={"bytes": None})
    await portal.json("PUT", "/content?path=b", 201, data=b"x" * 30)


async def test_after_a_restart_the_first_upload_has_the_folder_measured(portal: Portal) -> None:
    await order(portal, "PUT", "/limit", json={"bytes": 10**9})
    (portal.data.parent / "size.json").write_text(json.dumps({"bytes": 0, "files": 77, "at": 1.0, "entries": 77}))
    await portal.json("PUT", "/content?path=a", 201, data=b"x")
    while (told := await order(portal, "GET"))["size"]["files"] == 77:
        await asyncio.sleep(0.01)
    assert told["size"]["at"] >= portal.server.started_at


async def test_a_linked_folder_shows_a_path_and_changes_nothing(root: Path, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    (lab / "imagenet").mkdir(parents=True)
    (lab / "imagenet/f").write_text("x")
    (tmp_path / "lab2").mkdir()
    (lab / "escape").symlink_to("../lab2")
    async with running(settings_for(root, linkable=(lab,))) as portal:
        await portal.create()
        for path in (
            "/etc",
            f"{lab}2",
            f"{lab}/../lab2",
            f"{lab}/escape",
            f"{lab}/imagenet/f",
            "relative",
            f"{lab}/no",
        ):
            assert (await portal.ask("PUT", "/link", rights="manage", json={"path": path})).status in (404, 422), path
        await order(portal, "PUT", "/link", json={"path": f"{lab}/imagenet"})
        await order(portal, "PUT", "/link", json={"path": f"{lab}/imagenet"})
        assert [one["name"] for one in (await portal.json("GET", "/entries"))["entries"]] == ["f"]
        for method, path, body in (
            ("PUT", "/content?path=g", {"data": b"x"}),
            ("PUT", "/text?path=g", {"data": b"x", "headers": {"If-None-Match": "*"}}),
            ("PUT", "/archive", {"data": bytes(1024)}),
            ("POST", "/directories", {"json": {"path": "d"}}),
            ("POST", "/moves", {"json": {"source": "f", "target": "g"}}),
            ("POST", "/copies", {"json": {"source": "f", "target": "g"}}),
            ("POST", "/deletions", {"json": {"paths": ["f"]}}),
            ("DELETE", "/trash", {}),
        ):
            response = await portal.ask(method, path, **body)
            content = await response.json()
            is_empty_archive = path == "/archive" and content.get("written") == 0
            assert is_empty_archive or (response.status, content["code"]) == (403, "read-only"), (path, content)
        await order(portal, "POST", "/measurements", 202)
        assert (await order(portal, "GET"))["size"] is None
        await order(portal, "DELETE", "", 202)
        await until_state(portal, ABSENT)
    assert os.listdir(lab / "imagenet") == ["f"]


async def test_a_host_lists_its_folders_in_pages_the_unknown_too(portal: Portal) -> None:
    ids = [str(portal.folder_id)] + [str(await portal.create(uuid.uuid4())) for _ in range(4)]
    (portal.root / "zz").mkdir()
    (portal.root / "00").mkdir(exist_ok=True)
    (portal.root / "00" / "not-an-id").mkdir()
    headers = {"Authorization": f"Bearer {portal.ticket('manage', folder_id=HOST)}"}
    found: list[Any] = []
    after = ""
    while after is not None:
        page = await (await portal.client.get(f"/v1/host/folders?limit=2&after={after}", headers=headers)).json()
        found += page["folders"]
        after = page["next"]
    assert [one["id"] for one in found] == sorted(ids)
    assert {one["meta"]["name"] for one in found} == {"f"}
    told = await (await portal.client.get("/v1/host", headers=headers)).json()
    assert (told["host"], told["quota_mode"], told["fault"]) == ("local", "measured", "")
    assert 0 < told["free_bytes"] <= told["total_bytes"]


async def test_a_ticket_is_for_one_folder_one_host_certain_rights_and_a_while(portal: Portal) -> None:
    (portal.data / "f").write_text("x")
    other = await portal.create(uuid.uuid4())
    path = f"/v1/folders/{portal.folder_id}"

    async def status(method: str, path: str, token: str) -> int:
        response = await portal.client.request(method, path, headers={"Authorization": f"Bearer {token}"}, json={})
        return response.status

    assert (await portal.client.get(f"{path}/entries")).status == 401
    told = {"folder_id": portal.folder_id, "version": 1, "now": time.time(), "host": "local"}
    forged = sign_folder_ticket(new_private_key(), rights="manage", **told)  # type: ignore[arg-type]
    elsewhere = sign_folder_ticket(PRIVATE_KEY, rights="manage", **{**told, "host": "other"})  # type: ignore[arg-type]
    late = portal.ticket("manage", now=time.time() - 60)
    for token in ("", "x", "a.b.c", forged, elsewhere, late):
        assert await status("GET", f"{path}/entries", token) == 401
    view, edit = portal.ticket("view"), portal.ticket("edit")
    assert await status("GET", f"/v1/folders/{other}/entries", edit) == 403
    assert await status("GET", f"{path}/entries", view) == 200
    changes = [("PUT", "/content?path=x"), ("PUT", "/text?path=x"), ("PUT", "/archive"), ("DELETE", "/trash")]
    changes += [("POST", f"/{verb}") for verb in ("directories", "moves", "copies", "deletions")]
    changes += [("POST", "/trash/x/restore"), ("DELETE", "/trash/x")]
    for method, verb in changes:
        assert await status(method, path + verb, view) == 403, verb
    orders = [("PUT", ""), ("GET", ""), ("DELETE", ""), ("PUT", "/meta"), ("PUT", "/limit"), ("PUT", "/link")]
    orders += [("POST", "/clones"), ("POST", "/measurements")]
    for method, verb in orders:
        assert await status(method, path + verb, edit) == 403, verb
    for verb in ("/v1/host", "/v1/host/folders"):
        assert await status("GET", verb, portal.ticket("manage")) == 403


async def test_leftovers_go_with_their_age(portal: Portal) -> None:
    old = time.time() - 2 * 86400
    for name in ("left.part", "a.upload", "a.json", "young.upload"):
        (portal.incoming / name).write_text("x")
        if name != "young.upload":
            os.utime(portal.incoming / name, (old, old))
    (portal.incoming / "dir.part").mkdir()
    (portal.incoming / "dir.part/f").write_text("x")
    os.utime(portal.incoming / "dir.part", (old, old))
    (portal.data / "a").write_text("x")
    await portal.json("POST", "/deletions", json={"paths": ["a"]})
    host = portal.server.hosts["local"]
    await host.run_in_background("sweep", sweeping.sweep, now=time.time())
    assert os.listdir(portal.incoming) == ["young.upload"]
    assert len((await portal.json("GET", "/trash"))["items"]) == 1
    await host.run_in_background("sweep", sweeping.sweep, now=time.time() + 8 * 86400)
    assert (await portal.json("GET", "/trash"))["items"] == []


async def test_a_folder_that_cannot_be_read_keeps_no_other_from_being_swept(portal: Portal) -> None:
    for number in (1, 2, 3):
        folder = await portal.create(UUID(int=number))
        old = folder_path(portal.root, folder) / "incoming/old.upload"
        old.touch()
        os.utime(old, (0, 0))
    (folder_path(portal.root, UUID(int=1)) / "meta.json").write_text("{")
    host = portal.server.hosts["local"]
    await host.run_in_background("sweep", sweeping.sweep, now=time.time())
    left = [(folder_path(portal.root, UUID(int=number)) / "incoming/old.upload").exists() for number in (2, 3)]
    assert left == [False, False]


async def test_a_clone_is_held_to_its_limit_while_it_fills(portal: Portal) -> None:
    for name in "abc":
        (portal.data / name).write_bytes(b"x" * 5000)  # nobody has measured them
    clone = uuid.uuid4()
    body = {"source": str(portal.folder_id), "meta": {}, "limit": 12_000}
    await order(portal, "POST", "/clones", 202, folder_id=clone, json=body)
    while (told := await order(portal, "GET", folder_id=clone))["state"] != "absent" or not told["error"]:
        await asyncio.sleep(0.01)
    assert "exceed the 12000 bytes" in told["error"] and not folder_path(portal.root, clone).exists()


async def test_a_share_that_is_not_mounted_is_said_and_nothing_is_written_below(portal: Portal) -> None:
    portal.root.rename(portal.root.with_name("unmounted"))
    portal.root.mkdir()
    headers = {"Authorization": f"Bearer {portal.ticket('manage', folder_id=HOST)}"}
    assert (await portal.json("GET", "/entries", 503))["code"] == "storage-missing"
    assert (await portal.json("PUT", "/content?path=f", 503, data=b"x"))["code"] == "storage-missing"
    await order(portal, "PUT", "", 503, json={})
    assert "not mounted" in (await (await portal.client.get("/v1/host", headers=headers)).json())["fault"]
    health = await (await portal.client.get("/health")).json()
    assert health["ok"] is False
    assert os.listdir(portal.root) == []
    portal.root.rmdir()
    portal.root.with_name("unmounted").rename(portal.root)
    await portal.json("GET", "/entries")
    assert (await (await portal.client.get("/health")).json())["ok"] is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
async def test_files_belong_to_the_user_that_the_marker_names_and_roots_rights_do_not_help(tmp_path: Path) -> None:
    private = tmp_path / "private"  # as the data folder of bin/up: only root gets in
    private.mkdir(mode=0o700)
    root = prepare(private / "host", uid=1000)
    os.chown(root, 1000, 1000)
    async with running(settings_for(root)) as portal:
        await portal.create()
        await portal.json("PUT", "/content?path=f", 201, data=b"x")
        await portal.json("POST", "/directories", 201, json={"path": "d"})
        owners = {(found.st_uid, found.st_gid) for path in portal.data.rglob("*") for found in [path.stat()]}
        assert owners == {(1000, 1000)}
        (portal.data / "of-root").write_text("secret")
        os.chmod(portal.data / "of-root", 0o600)
        assert (await portal.json("GET", "/content?path=of-root", 403))["code"] == "not-permitted"
        (portal.data / "other").mkdir(mode=0o700)
        assert (await portal.json("PUT", "/content?path=other/f", 403, data=b"x"))["code"] == "not-permitted"
    assert os.geteuid() == 0
    (tmp_path / "still-root").touch()
    assert (tmp_path / "still-root").stat().st_uid == 0
