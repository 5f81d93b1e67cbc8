"""Limits that no file system enforces: all ways of writing are refused with numbers, and leave nothing half-written."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from backendai.files.entries import tree
from backendai.files.folders import measuring
from backendai.files.folders.progress import Progress
from backendai.files.limits.quota import Amount, Ledger
from tests.files.conftest import Portal
from tests.files.test_archives import tar_of
from tests.files.test_uploads import KIND, TUS, begin, metadata, send

pytestmark = pytest.mark.asyncio
LIMIT, USED, LARGE = 4_000_000, 3_000_000, 2_000_000  # bytes; larger than what an archive's member keeps in memory
SMALL = 1000


async def unknown_length(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def create(portal: Portal, data: bytes) -> Any:
    return await portal.ask("PUT", "/content?path=new", data=data)


async def stream(portal: Portal, data: bytes) -> Any:
    return await portal.ask("PUT", "/content?path=new", data=unknown_length(data))


async def unpack_large(portal: Portal, data: bytes) -> Any:
    return await portal.ask("PUT", "/archive", data=tar_of(("new", data)))


async def unpack_small(portal: Portal, data: bytes) -> Any:
    parts = [(f"new/{number}", data[: len(data) // 10]) for number in range(10)]
    return await portal.ask("PUT", "/archive?overwrite=keep-both", data=tar_of(*parts))


async def announce(portal: Portal, data: bytes) -> Any:
    answer = await portal.ask("POST", "/uploads", headers={**TUS, **metadata("new"), "Upload-Length": str(len(data))})
    if answer.status != 201:
        return answer
    return await send(portal, "/uploads/" + answer.headers["Location"].rpartition("/")[2], 0, data)


async def copy_file(portal: Portal, data: bytes) -> Any:
    return await _copy(portal, "there", len(data))


async def copy_directory(portal: Portal, data: bytes) -> Any:
    return await _copy(portal, "directory", len(data))


async def _copy(portal: Portal, name: str, size: int) -> Any:
    source = portal.data / name / "file" if name == "directory" else portal.data / name
    source.parent.mkdir(exist_ok=True)
    source.write_bytes(bytes(size))
    return await portal.ask("POST", "/copies", json={"source": name, "target": "new", "keep_both": True})


async def save_text(portal: Portal, data: bytes) -> Any:
    text = b"x" * min(len(data), 2**20)
    return await portal.ask("PUT", "/text?path=new", data=text, headers={"If-None-Match": "*"})


Way = Callable[[Portal, bytes], Awaitable[Any]]
WAYS = [create, stream, unpack_large, unpack_small, announce, copy_file, copy_directory, save_text]


async def limit(portal: Portal, *, used: int, limit: int = LIMIT) -> None:
    """Set the folder's limit, and its last measurement."""
    size = {"bytes": used, "files": 1, "entries": 1, "at": time.time()}
    (portal.data.parent / "size.json").write_text(json.dumps(size))
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": limit})


def half_written(portal: Portal) -> list[str]:
    """What a refused request left: there is nothing to sweep."""
    return os.listdir(portal.incoming) + [path.name for path in portal.data.glob("new*")]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_writing_is_held_to_the_limit(portal: Portal, way: Way) -> None:
    used = LIMIT - 2 * SMALL if way is save_text else USED
    await limit(portal, used=used)
    refused = await way(portal, bytes(LARGE))
    told = await refused.json()
    assert (refused.status, told["code"], told["limit"], told["used"]) == (507, "quota", LIMIT, used), told
    assert str(LIMIT) in told["message"] and str(used) in told["message"]
    assert half_written(portal) == []
    for _ in range(2):  # what was refused is not counted, and what fits comes in
        assert (await way(portal, bytes(SMALL))).status in (200, 201, 204, 412, 409)
    assert (portal.data / "new").exists()


async def test_a_full_folder_is_moved_renamed_deleted_and_restored_in(portal: Portal) -> None:
    (portal.data / "d").mkdir()
    (portal.data / "f").write_bytes(bytes(SMALL))
    await limit(portal, used=LIMIT)
    await portal.json("POST", "/moves", json={"source": "f", "target": "d/g"})
    (item,) = (await portal.json("POST", "/deletions", json={"paths": ["d/g"]}))["items"]
    await portal.json("POST", f"/trash/{item['id']}/restore", json={})  # the trash counts too: nothing is added
    await portal.json("POST", "/directories", 201, json={"path": "empty"})
    assert (portal.data / "d/g").stat().st_size == SMALL


async def test_an_archive_that_does_not_fit_says_what_came_whole(portal: Portal) -> None:
    await limit(portal, used=USED)
    members = [("new-1", bytes(SMALL)), ("new-2", bytes(LARGE)), ("new-3", bytes(SMALL))]
    told = await portal.json("PUT", "/archive", 507, data=tar_of(*members))
    assert (told["code"], told["written"], told["limit"]) == ("quota", 1, LIMIT)
    assert half_written(portal) == ["new-1"]


async def test_members_that_do_not_fit_together_leave_nothing_behind(portal: Portal) -> None:
    await limit(portal, used=LIMIT - LARGE)
    members = [("new-large", bytes(LARGE * 3 // 5)), ("new-1", bytes(LARGE // 4)), ("new-2", bytes(LARGE // 4))]
    told = await portal.json("PUT", "/archive", 507, data=tar_of(*members))
    assert (told["code"], told["written"], told["limit"]) == ("quota", 0, LIMIT)
    assert half_written(portal) == []


async def test_an_upload_goes_on_after_it_was_refused_for_the_limit(portal: Portal) -> None:
    await limit(portal, used=USED)
    upload = await begin(portal, "new", SMALL)
    await limit(portal, used=LIMIT)
    headers = {**TUS, **KIND, "Upload-Offset": "0"}
    refused = await portal.ask("PATCH", upload, headers=headers, data=bytes(SMALL))
    assert (refused.status, (await refused.json())["used"]) == (507, LIMIT)
    assert list(portal.data.iterdir()) == []
    await limit(portal, used=USED)
    assert (await send(portal, upload, 0, bytes(SMALL))).status == 204


async def test_a_cancelled_upload_frees_its_bytes(portal: Portal) -> None:
    portal.server.settled_after = 0.01
    await limit(portal, used=0)
    upload = await begin(portal, "new", USED)
    assert (await send(portal, upload, 0, os.urandom(USED - 1))).status == 204
    while (await portal.json("GET", "/entries"))["folder_size"]["bytes"] < USED - 1:
        await portal.json(
            "GET", "/entry"
        )  # the measurement that the part has asked for; the test's own limit ends this
    portal.server.ledger.forget(portal.folder_id, Amount(USED))
    assert (
        await portal.ask("POST", "/uploads", headers={**TUS, **metadata("f"), "Upload-Length": str(LARGE)})
    ).status == 507
    assert (await portal.ask("DELETE", upload, headers=TUS)).status == 204
    while (await portal.json("GET", "/entries"))["folder_size"]["bytes"] >= USED - 1:
        await portal.json("GET", "/entry")
    await begin(portal, "f", LARGE)


@pytest.mark.parametrize("way", [create, stream, unpack_large, unpack_small, announce, save_text])
async def test_a_file_in_a_full_folder_can_be_replaced_by_one_of_its_size(portal: Portal, way: Way) -> None:
    """Again and again, at once after each other, and not by a larger one."""
    size = 10_000 if way in (unpack_small, save_text) else LARGE
    assert (await way(portal, os.urandom(size))).status in (200, 201, 204)
    portal.server.ledger = Ledger()
    portal.server.settled_after = 3600
    replace = REPLACED[way]
    held = sum(path.stat().st_blocks * 512 for path in portal.data.rglob("*") if path.is_file())
    await limit(portal, used=held, limit=held + 100)
    for _ in range(3):
        assert (await replace(portal, os.urandom(size))).status in (200, 201, 204)
    refused = await replace(portal, os.urandom(size + 100_000))
    assert (refused.status, (await refused.json())["code"]) == (507, "quota")
    assert os.listdir(portal.incoming) == [] or way is announce
    assert (await create_other(portal, size)).status == 507


async def create_other(portal: Portal, size: int) -> Any:
    return await portal.ask("PUT", "/content?path=other", data=bytes(size))


async def replace_text(portal: Portal, data: bytes) -> Any:
    return await portal.ask("PUT", "/text?path=new", data=b"x" * len(data), headers={"If-Match": "*"})


async def replace_by_upload(portal: Portal, data: bytes) -> Any:
    told = {**TUS, **metadata("new", overwrite="1"), "Upload-Length": str(len(data))}
    answer = await portal.ask("POST", "/uploads", headers=told)
    if answer.status != 201:
        return answer
    return await send(portal, "/uploads/" + answer.headers["Location"].rpartition("/")[2], 0, data)


async def unpack_all(portal: Portal, data: bytes) -> Any:
    """Two large members: each is there twice until the first two are in their place."""
    return await portal.ask("PUT", "/archive?overwrite=all", data=tar_of(("new", data)))


async def unpack_parts(portal: Portal, data: bytes) -> Any:
    parts = [(f"new/{number}", data[: len(data) // 10]) for number in range(10)]
    return await portal.ask("PUT", "/archive?overwrite=all", data=tar_of(*parts))


REPLACED: dict[Way, Way] = {
    create: lambda portal, data: portal.ask("PUT", "/content?path=new&overwrite=1", data=data),
    stream: lambda portal, data: portal.ask("PUT", "/content?path=new&overwrite=1", data=unknown_length(data)),
    unpack_large: unpack_all,
    unpack_small: unpack_parts,
    announce: replace_by_upload,
    save_text: replace_text,
}


async def test_large_members_replace_files_of_a_full_folder_one_after_the_other(portal: Portal) -> None:
    names = ("a", "b", "c")
    assert (await portal.json("PUT", "/archive", data=tar_of(*((name, bytes(LARGE)) for name in names))))[
        "written"
    ] == 3
    portal.server.ledger, portal.server.settled_after = Ledger(), 3600
    held = sum(path.stat().st_blocks * 512 for path in portal.data.iterdir())
    await limit(portal, used=held, limit=held)
    archive = tar_of(*((name, os.urandom(LARGE)) for name in names))
    assert (await portal.json("PUT", "/archive?overwrite=all", data=archive))["written"] == 3


async def test_a_file_moved_away_while_it_is_replaced_frees_nothing(portal: Portal) -> None:
    await portal.json("PUT", "/content?path=new", 201, data=bytes(LARGE))
    portal.server.ledger, portal.server.settled_after = Ledger(), 3600
    await limit(portal, used=LARGE, limit=LARGE + 5000)

    async def moving() -> AsyncIterator[bytes]:
        yield bytes(LARGE // 2)
        await portal.json("POST", "/moves", json={"source": "new", "target": "elsewhere"})
        yield bytes(LARGE // 2)

    answer = await portal.ask("PUT", "/content?path=new&overwrite=1", data=moving())
    assert (answer.status, (await answer.json())["code"]) == (507, "quota")
    assert (os.listdir(portal.data), os.listdir(portal.incoming)) == (["elsewhere"], [])
    assert portal.server.ledger.written(portal.folder_id) == Amount()


async def test_a_file_with_another_name_or_with_holes_frees_less_than_its_size(portal: Portal) -> None:
    with (portal.data / "new").open("wb") as file:
        file.truncate(LARGE)
    (portal.data / "two").write_bytes(bytes(LARGE))
    os.link(portal.data / "two", portal.data / "names")
    await limit(portal, used=LIMIT)
    for name in ("new", "two"):
        answer = await portal.ask("PUT", f"/content?path={name}&overwrite=1", data=bytes(LARGE))
        assert answer.status == 507


@pytest.mark.parametrize("way", [*WAYS, "directory"])
async def test_the_number_of_files_is_limited_and_told(
    portal: Portal, way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_LEAST_ENTRIES", 30)
    ask = make_directory if way == "directory" else way
    size = {"bytes": 0, "files": 1, "at": time.time(), "entries": 30}
    await limit(portal, used=0, limit=100_000)
    (portal.data.parent / "size.json").write_text(json.dumps(size))
    refused = await ask(portal, bytes(SMALL))
    told = await refused.json()
    assert (refused.status, told["code"], told["limit"], told["used"]) == (507, "too-many-files", 30, 30), told
    assert half_written(portal) == []
    (portal.data.parent / "size.json").write_text(json.dumps({**size, "entries": 10}))
    assert (await ask(portal, bytes(SMALL))).status in (200, 201, 204)


async def make_directory(portal: Portal, data: bytes) -> Any:
    return await portal.ask("POST", "/directories", json={"path": "new"})


async def test_files_and_directories_count_at_once_and_when_measured(portal: Portal) -> None:
    portal.server.settled_after = 3600
    await limit(portal, used=0, limit=1000)
    deep = [("/".join(["d"] * 200) + f"/{number}", b"") for number in range(2)]
    assert (await portal.json("PUT", "/archive", data=tar_of(*deep)))["written"] == 2
    assert portal.server.ledger.written(portal.folder_id).entries == 202
    many = [(str(number), b"") for number in range(900)]
    told = await portal.json("PUT", "/archive", 507, data=tar_of(*many))
    assert (told["code"], told["limit"], told["written"]) == ("too-many-files", 1000, 500)
    root = os.open(portal.root, os.O_RDONLY)
    try:
        size = measuring.measure(root, portal.folder_id, time.time(), Progress())
    finally:
        os.close(root)
    assert (size.files, size.entries) == (502, 702)
    assert tree.Meta("", 1, limit=2**30).most_entries == 65536


async def test_a_clone_has_no_more_files_than_its_limit_allows(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_LEAST_ENTRIES", 5)
    for number in range(3):
        (portal.data / f"d{number}").mkdir()
        (portal.data / f"d{number}/f").touch()
    target = uuid.uuid4()
    body = {"source": str(portal.folder_id), "meta": {"name": "c"}, "limit": 50_000}
    await portal.json("POST", "/clones", 202, folder_id=target, rights="manage", json=body)
    while (told := await portal.json("GET", "", folder_id=target, rights="manage"))["state"] == "cloning":
        await asyncio.sleep(0.01)
    assert "files" in told["error"] and "5" in told["error"]
