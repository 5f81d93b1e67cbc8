"""Uploads that are resumed, by the tus protocol."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backendai.base.process.metrics_access import Scrapers
from backendai.files.entries import uploads
from backendai.files.folders.sweeping import sweep
from backendai.files.http import uploads as upload_views
from tests.files.conftest import Portal, running, settings_for

pytestmark = pytest.mark.asyncio
BYTES = os.urandom(5 * 2**20 + 3)
TUS = {"Tus-Resumable": "1.0.0"}
KIND = {"Content-Type": "application/offset+octet-stream"}


def metadata(path: str, **more: str) -> dict[str, str]:
    told = {"path": path, **more}
    return {"Upload-Metadata": ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in told.items())}


async def begin(portal: Portal, path: str, length: int, **more: str) -> str:
    headers = {**TUS, **metadata(path, **more), "Upload-Length": str(length)}
    response = await portal.ask("POST", "/uploads", headers=headers)
    assert response.status == 201, await response.text()
    assert "Upload-Expires" in response.headers
    return "/uploads/" + response.headers["Location"].rpartition("/")[2]


async def send(portal: Portal, upload: str, offset: int, data: Any) -> Any:
    return await portal.ask("PATCH", upload, headers={**TUS, **KIND, "Upload-Offset": str(offset)}, data=data)


async def offset_of(portal: Portal, upload: str) -> int:
    response = await portal.ask("HEAD", upload, headers=TUS, rights="edit")
    assert response.status == 200
    return int(response.headers["Upload-Offset"])


async def test_parts_become_the_file_when_the_last_has_come(portal: Portal, each_way: str) -> None:
    upload = await begin(portal, "f", len(BYTES))
    cut = 2 * 2**20 + 1
    assert (await send(portal, upload, 0, BYTES[:cut])).headers["Upload-Offset"] == str(cut)
    assert os.listdir(portal.data) == []
    assert await offset_of(portal, upload) == cut
    assert (await send(portal, upload, cut, BYTES[cut:])).status == 204
    assert (portal.data / "f").read_bytes() == BYTES
    assert await offset_of(portal, upload) == len(BYTES)  # whoever lost the last answer hears it again
    again = await send(portal, upload, len(BYTES), b"")
    assert (again.status, again.headers["Upload-Offset"]) == (204, str(len(BYTES)))
    assert (await send(portal, upload, len(BYTES), b"more")).status == 413
    assert (await send(portal, upload, 0, BYTES)).status == 409
    top = os.open(portal.root, os.O_RDONLY)
    sweep(top, now=time.time() + 60)
    assert await offset_of(portal, upload) == len(BYTES)
    sweep(top, now=time.time() + 3600)
    os.close(top)
    assert os.listdir(portal.incoming) == []
    assert (await portal.ask("HEAD", upload, headers=TUS, rights="edit")).status == 404


async def test_an_upload_whose_file_was_deleted_or_replaced_is_not_called_whole(portal: Portal) -> None:
    upload = await begin(portal, "f", len(BYTES))
    assert (await send(portal, upload, 0, BYTES)).status == 204
    (portal.data / "f").write_bytes(b"other")
    assert (await portal.ask("HEAD", upload, headers=TUS, rights="edit")).status == 404
    assert (await send(portal, upload, len(BYTES), b"")).status == 404
    (portal.data / "f").unlink()
    assert (await portal.ask("HEAD", upload, headers=TUS, rights="edit")).status == 404


async def test_an_empty_file_is_there_at_once(portal: Portal) -> None:
    await begin(portal, "empty", 0)
    assert (portal.data / "empty").read_bytes() == b""


async def test_a_part_at_another_offset_is_refused_and_harms_nothing(portal: Portal) -> None:
    upload = await begin(portal, "f", 10)
    await send(portal, upload, 0, b"01234")
    for offset in (0, 4, 6, 10):
        refusal = await send(portal, upload, offset, b"xxxx")
        assert (refusal.status, (await refusal.json())["offset"]) == (409, 5)
    assert (await send(portal, upload, 5, b"567890")).status == 413
    assert await offset_of(portal, upload) == 5
    assert (await send(portal, upload, 5, b"56789")).status == 204
    assert (portal.data / "f").read_bytes() == b"0123456789"


async def test_what_came_before_a_connection_broke_is_kept(portal: Portal) -> None:
    upload = await begin(portal, "f", len(BYTES))

    async def breaking() -> AsyncIterator[bytes]:
        yield BYTES[: 3 * 2**20]
        await asyncio.sleep(0.2)
        raise ConnectionResetError

    with pytest.raises(Exception):  # noqa: B017  (what the client calls its own broken connection)
        await send(portal, upload, 0, breaking())
    kept = await offset_of(portal, upload)
    assert 0 <= kept <= 3 * 2**20
    assert (await send(portal, upload, kept, BYTES[kept:])).status == 204
    assert (portal.data / "f").read_bytes() == BYTES


async def test_bytes_that_were_not_synced_are_cut_off(portal: Portal) -> None:
    upload = await begin(portal, "f", 10)
    await send(portal, upload, 0, b"01234")
    (data,) = portal.incoming.glob("*.upload")
    data.write_bytes(b"01234garbage after a crash")
    assert await offset_of(portal, upload) == 5
    await send(portal, upload, 5, b"56789")
    assert (portal.data / "f").read_bytes() == b"0123456789"


async def test_a_client_that_comes_again_takes_over_from_its_lost_connection(portal: Portal) -> None:
    upload = await begin(portal, "f", 10)
    hangs = asyncio.Event()

    async def never_ending() -> AsyncIterator[bytes]:
        yield b"012"
        hangs.set()
        await asyncio.sleep(60)

    lost = asyncio.create_task(send(portal, upload, 0, never_ending()))
    await hangs.wait()
    at = await offset_of(portal, upload)
    assert (await send(portal, upload, at, b"0123456789"[at:])).status == 204
    assert (portal.data / "f").read_bytes() == b"0123456789"
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)


async def test_an_upload_replaces_only_when_it_was_said_so(portal: Portal) -> None:
    (portal.data / "f").write_text("old")
    refused = await portal.ask("POST", "/uploads", headers={**TUS, **metadata("f"), "Upload-Length": "3"})
    assert refused.status == 409
    upload = await begin(portal, "f", 3, overwrite="1")
    await send(portal, upload, 0, b"new")
    assert (portal.data / "f").read_text() == "new"
    late = await begin(portal, "g", 3)
    (portal.data / "g").write_text("somebody was faster")
    assert (await send(portal, late, 0, b"new")).status == 409
    assert (portal.data / "g").read_text() == "somebody was faster"


async def test_a_whole_upload_that_was_not_placed_is_placed_before_it_is_called_whole(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (portal.data / "f").write_text("old")
    upload, taken = await begin(portal, "f", 3, overwrite="1"), await begin(portal, "g", 3)
    with monkeypatch.context() as crash:
        crash.setattr(uploads, "finish", lambda tree, upload, *, now: os.listdir("/nonexistent"))
        for one in (upload, taken):
            assert (await send(portal, one, 0, b"new")).status == 404
    assert (portal.data / "f").read_text() == "old"
    assert await offset_of(portal, upload) == 3
    assert (portal.data / "f").read_text() == "new"
    (portal.data / "g").write_text("somebody was faster")
    assert (await portal.ask("HEAD", taken, headers=TUS, rights="edit")).status == 409
    assert (portal.data / "g").read_text() == "somebody was faster"


async def test_an_upload_can_be_given_up(portal: Portal) -> None:
    upload = await begin(portal, "f", 10)
    assert (await portal.ask("DELETE", upload, headers=TUS)).status == 204
    assert (await portal.ask("DELETE", upload, headers=TUS)).status == 204, "repeated, as its answer was lost"
    assert os.listdir(portal.incoming) == []


async def test_the_file_of_a_complete_upload_stays_when_the_upload_is_deleted(portal: Portal) -> None:
    upload = await begin(portal, "f", 3)
    assert (await send(portal, upload, 0, b"new")).status == 204
    assert (await portal.ask("DELETE", upload, headers=TUS)).status == 204
    assert (await portal.ask("HEAD", upload, headers=TUS, rights="edit")).status == 404
    assert (portal.data / "f").read_text() == "new"
    assert os.listdir(portal.incoming) == []


async def test_the_server_says_what_it_can_and_refuses_the_rest(portal: Portal) -> None:
    assert (await portal.ask("OPTIONS", "/uploads")).headers["Tus-Extension"] == "creation,expiration,termination"
    for headers, status in (
        ({**metadata("f"), "Upload-Length": "1"}, 412),
        ({**TUS, **metadata("f")}, 422),
        ({**TUS, **metadata("f"), "Upload-Length": "-1"}, 422),
        ({**TUS, "Upload-Length": "1"}, 422),
        ({**TUS, "Upload-Length": "1", "Upload-Metadata": "path %%%"}, 422),
        ({**TUS, **metadata("../f"), "Upload-Length": "1"}, 422),
    ):
        assert (await portal.ask("POST", "/uploads", headers=headers)).status == status
    for name in ("x", "0" * 32, "..%2f..%2fmeta"):
        assert (await portal.ask("HEAD", f"/uploads/{name}", headers=TUS, rights="edit")).status == 404


async def test_an_upload_beyond_the_limit_is_refused_at_its_beginning(portal: Portal) -> None:
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": 9})
    refused = await portal.ask("POST", "/uploads", headers={**TUS, **metadata("f"), "Upload-Length": "10"})
    assert (refused.status, (await refused.json())["code"]) == (507, "quota")


async def test_of_parallel_uploads_only_those_that_fit_take_bytes(portal: Portal) -> None:
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": 10_000_000})
    ways = [await begin(portal, name, 8_000_000) for name in ("a", "b", "c")]
    more = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 1_500_000
        await more.wait()
        yield b"x" * 6_500_000

    headers = {**TUS, **KIND, "Upload-Offset": "0"}
    first = asyncio.create_task(portal.ask("PATCH", ways[0], data=body(), headers=headers))
    while portal.server.ledger.written(portal.folder_id).bytes < 1_000_000:
        await asyncio.sleep(0.01)
    for way in ways[1:]:
        assert (await portal.ask("PATCH", way, data=b"y" * 4_000_000, headers=headers)).status == 507
    more.set()
    assert (await first).status == 204
    assert (await portal.ask("PATCH", ways[1], data=b"y" * 8_000_000, headers=headers)).status == 507


async def test_long_parts_are_synced_on_their_way(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_views, "_SYNC_EVERY", 2**20)
    upload = await begin(portal, "f", len(BYTES))
    assert (await send(portal, upload, 0, BYTES)).status == 204
    assert (portal.data / "f").read_bytes() == BYTES


async def test_the_metrics_say_what_came_and_what_went(root: Path) -> None:
    async with running(settings_for(root, scrapers=Scrapers("a-token-of-a-scraper-1"))) as portal:
        await portal.create()

        async def counts() -> dict[tuple[str, ...], float]:
            bearer = {"Authorization": "Bearer a-token-of-a-scraper-1"}
            text = await (await portal.client.get("/metrics", headers=bearer)).text()
            families = text_string_to_metric_families(text)
            return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}

        before = await counts()
        await send(portal, await begin(portal, "f", len(BYTES)), 0, BYTES)
        assert await (await portal.ask("GET", "/content?path=f")).read() == BYTES
        after = await counts()
        grown = {name: after[name] - before.get(name, 0) for name in after}
        assert grown["backendai_files_requests_total", "PATCH", "uploads", "2xx"] == 1
        assert grown["backendai_files_requests_total", "GET", "content", "2xx"] == 1
        assert grown["backendai_files_bytes_total", "received"] == len(BYTES)
        assert len(BYTES) <= grown["backendai_files_bytes_total", "sent"] < len(BYTES) + 2**16
        assert (await portal.client.get("/metrics")).status == 404
