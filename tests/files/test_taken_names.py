"""Names that are taken: refused, replaced when that was said, or numbered by the server so that both entries stay."""

from __future__ import annotations

import os
from typing import Any

import pytest

from backendai.files.entries import uploads
from backendai.files.entries.naming import numbered
from tests.files.conftest import Portal
from tests.files.test_archives import put, tar_of
from tests.files.test_uploads import TUS, begin, metadata, offset_of, send

BOTH = {"keep_both": True}


def test_a_number_stands_before_the_ending_of_a_file_and_behind_the_name_of_a_directory() -> None:
    assert numbered(b"a.tar.gz", 2, is_directory=False) == b"a.tar (2).gz"
    assert numbered(b".env", 2, is_directory=False) == b".env (2)"
    assert numbered(b"data.v2", 3, is_directory=True) == b"data.v2 (3)"
    assert numbered(b"\xff.txt", 2, is_directory=False) == b"\xff (2).txt"


def test_a_long_name_loses_the_end_of_its_stem_for_a_number() -> None:
    name = numbered("é".encode() * 125 + b".txt", 12, is_directory=False)
    assert name.decode() == "é" * 123 + " (12).txt" and len(name) == 255
    assert numbered(b"x" * 255, 2, is_directory=True) == b"x" * 251 + b" (2)"


@pytest.mark.asyncio
async def test_a_move_a_copy_and_a_restore_take_the_first_free_name_in_one_request(portal: Portal) -> None:
    for name in ("data.v2", "other/data.v2", "other/data.v2 (2)"):
        (portal.data / name).mkdir(parents=True)
    for name in ("a.txt", "other/a.txt", "other/b.txt"):
        (portal.data / name).write_text(name)
    moved = await portal.json("POST", "/moves", json={"source": "data.v2", "target": "other/data.v2", **BOTH})
    assert moved["path"] == "other/data.v2 (3)"
    assert (await portal.json("POST", "/copies", 201, json={"source": "a.txt", "into": "other", **BOTH}))[
        "path"
    ] == "other/a (2).txt"
    again = {"source": "other/a.txt", "target": "other/a.txt", **BOTH}
    assert (await portal.json("POST", "/copies", 201, json=again))["path"] == "other/a (3).txt"
    assert (await portal.json("POST", "/moves", json=again))["path"] == "other/a.txt"  # it has that name
    (item,) = (await portal.json("POST", "/deletions", json={"paths": ["other/b.txt"]}))["items"]
    (portal.data / "other/b.txt").write_text("new")
    await portal.json("POST", f"/trash/{item['id']}/restore", 409, json={})
    restored = await portal.json("POST", f"/trash/{item['id']}/restore", json=BOTH)
    assert restored["path"] == "other/b (2).txt"
    assert (portal.data / "other/b.txt").read_text() == "new"
    assert (portal.data / "other/b (2).txt").read_text() == "other/b.txt"
    answer = await portal.json("POST", "/moves", 422, json={**again, "overwrite": True})
    assert "exclude each other" in answer["message"]


@pytest.mark.asyncio
async def test_an_entry_moves_beside_the_directory_that_holds_it(portal: Portal) -> None:
    (portal.data / "run/run").mkdir(parents=True)
    told = {"source": "run/run", "target": "run"}
    assert (await portal.json("POST", "/moves", 409, json=told))["code"] == "exists"
    assert (await portal.json("POST", "/moves", 422, json={**told, "overwrite": True}))["code"] == "into-itself"
    assert (await portal.json("POST", "/moves", json={**told, **BOTH}))["path"] == "run (2)"


@pytest.mark.asyncio
async def test_an_archive_names_what_was_kept_and_its_files_get_numbers_in_one_request(portal: Portal) -> None:
    (portal.data / "taken.d").mkdir()
    for name in ("a.txt", "same"):
        (portal.data / name).write_text("old")
    os.utime(portal.data / "same", (1_700_000_000, 1_700_000_000))
    archive = tar_of(("a.txt", b"new a"), ("same", b"OLD"), ("taken.d", b"a file"), ("fresh", b"f"))
    told = await put(portal, archive, overwrite="never")
    assert (told["written"], told["skipped"], told["equal"]) == (1, 3, 1)
    assert told["kept"] == [{"path": "a.txt", "kind": "file"}, {"path": "taken.d", "kind": "directory"}]

    told = await put(portal, archive, overwrite="keep-both")
    assert (told["written"], told["equal"], told["kept"], told["refused"]) == (2, 2, [], [])
    assert (portal.data / "a (2).txt").read_text() == "new a"
    assert (portal.data / "taken (2).d").read_text() == "a file"
    before = sorted(os.listdir(portal.data))
    assert (await put(portal, archive, overwrite="keep-both"))["equal"] == 4  # as after a lost answer
    assert sorted(os.listdir(portal.data)) == before


@pytest.mark.asyncio
async def test_a_large_upload_is_refused_at_its_beginning_and_can_be_kept_beside(portal: Portal) -> None:
    (portal.data / "model.bin").mkdir()
    headers = {**TUS, **metadata("model.bin"), "Upload-Length": "3"}
    refused = await portal.ask("POST", "/uploads", headers=headers)
    assert (refused.status, (await refused.json())["code"]) == (409, "is-directory")
    upload = await begin(portal, "model.bin", 3, keep_both="1")
    assert (await send(portal, upload, 0, b"new")).status == 204
    assert (portal.data / "model (2).bin").read_bytes() == b"new"
    assert await offset_of(portal, upload) == 3  # a client that lost the last answer
    both = {"overwrite": "1", "keep_both": "1"}
    refused = await portal.ask("POST", "/uploads", headers={**TUS, **metadata("f", **both), "Upload-Length": "3"})
    assert refused.status == 422


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [{"overwrite": True}, BOTH])
async def test_a_name_that_was_taken_meanwhile_is_settled_without_sending_again(portal: Portal, answer: Any) -> None:
    upload = await begin(portal, "f.bin", 3)
    (portal.data / "f.bin").write_text("somebody was faster")
    assert (await send(portal, upload, 0, b"new")).status == 409
    assert (await portal.ask("POST", upload, headers=TUS, json={})).status == 409
    settled = await portal.ask("POST", upload, headers=TUS, json=answer)
    assert (settled.status, settled.headers["Upload-Offset"]) == (200, "3")
    there = {path.name: path.read_text() for path in portal.data.iterdir()}
    beside = {"f.bin": "somebody was faster", "f (2).bin": "new"}
    assert there == ({"f.bin": "new"} if "overwrite" in answer else beside)


@pytest.mark.asyncio
async def test_no_upload_replaces_a_directory_that_appeared_meanwhile(portal: Portal) -> None:
    upload = await begin(portal, "f", 3, overwrite="1")
    (portal.data / "f").mkdir()
    (portal.data / "f/inside").write_text("x")
    refused = await send(portal, upload, 0, b"new")
    assert (refused.status, (await refused.json())["code"]) == (409, "is-directory")
    assert (portal.data / "f/inside").read_text() == "x"


@pytest.mark.asyncio
async def test_an_upload_that_was_placed_before_a_crash_is_found_under_its_number(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (portal.data / "f").write_text("old")
    upload = await begin(portal, "f", 3, keep_both="1")
    with monkeypatch.context() as crash:
        crash.setattr(uploads.naming, "rename", lambda *_, **__: os.listdir("/nonexistent"))
        assert (await send(portal, upload, 0, b"new")).status == 404
    assert await offset_of(portal, upload) == 3
    assert sorted(os.listdir(portal.data)) == ["f", "f (2)"]
    assert await offset_of(portal, upload) == 3
    assert sorted(os.listdir(portal.data)) == ["f", "f (2)"]
