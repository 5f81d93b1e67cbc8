"""Limits that no file system enforces: all ways of writing are refused with numbers, and leave nothing half-written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

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
    size = {"bytes": used, "files": 1, "at": time.time()}
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
    portal.server.ledger.forget(portal.folder_id, USED)
    assert (
        await portal.ask("POST", "/uploads", headers={**TUS, **metadata("f"), "Upload-Length": str(LARGE)})
    ).status == 507
    assert (await portal.ask("DELETE", upload, headers=TUS)).status == 204
    while (await portal.json("GET", "/entries"))["folder_size"]["bytes"] >= USED - 1:
        await portal.json("GET", "/entry")
    await begin(portal, "f", LARGE)
