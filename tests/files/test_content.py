"""Bytes of files: download with ranges, upload of one file, editing of texts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from backendai.files.entries import content
from backendai.files.entries.content import LARGEST_TEXT
from tests.files.conftest import Portal

pytestmark = pytest.mark.asyncio
BYTES = os.urandom(3 * 2**20 + 17)


async def test_a_file_goes_up_and_comes_down_as_it_was(portal: Portal, each_way: str) -> None:
    answer = await portal.json("PUT", "/content?path=f.bin", 201, data=BYTES)
    response = await portal.ask("GET", "/content?path=f.bin")
    assert await response.read() == BYTES
    assert response.headers["ETag"] == f'"{answer["etag"]}"'
    assert response.headers["Content-Length"] == str(len(BYTES))
    assert response.headers["Content-Disposition"].startswith("attachment")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert os.listdir(portal.incoming) == []
    again = await portal.ask("GET", "/content?path=f.bin", headers={"If-None-Match": response.headers["ETag"]})
    assert again.status == 304


@pytest.mark.parametrize(
    ("told", "part"),
    [
        ("bytes=0-0", BYTES[:1]),
        ("bytes=5-9", BYTES[5:10]),
        (f"bytes={2**20}-", BYTES[2**20 :]),
        ("bytes=-3", BYTES[-3:]),
        (f"bytes=10-{10**12}", BYTES[10:]),
    ],
    ids=["first", "middle", "rest", "last", "too many"],
)
async def test_ranges(portal: Portal, told: str, part: bytes) -> None:
    (portal.data / "f").write_bytes(BYTES)
    response = await portal.ask("GET", "/content?path=f", headers={"Range": told})
    assert (response.status, await response.read()) == (206, part)
    changed = await portal.ask("GET", "/content?path=f", headers={"Range": told, "If-Range": '"other"'})
    assert (changed.status, await changed.read()) == (200, BYTES)


async def test_a_range_behind_the_end_is_refused_and_an_empty_file_is_no_range(portal: Portal) -> None:
    (portal.data / "f").write_bytes(b"abc")
    (portal.data / "empty").write_bytes(b"")
    for told in ("bytes=3-", "bytes=9-12", "bytes=-0", "bytes=2-1"):
        await portal.json("GET", "/content?path=f", 416, headers={"Range": told})
    assert (await portal.ask("GET", "/content?path=empty")).status == 200
    head = await portal.ask("HEAD", "/content?path=f")
    assert (head.status, head.headers["Content-Length"], await head.read()) == (200, "3", b"")


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"plain \xc3\xa4", "text/plain; charset=utf-8"),
        (b"<html><script>", "text/plain; charset=utf-8"),
        (b"<svg xmlns=", "text/plain; charset=utf-8"),
        (b"\x7fELF\0\0", "application/octet-stream"),
        (b"\xff\xfe\xfd", "application/octet-stream"),
        (b"x" * 511 + "ä".encode(), "text/plain; charset=utf-8"),
    ],
)
async def test_only_what_cannot_run_is_shown_by_browsers(portal: Portal, start: bytes, kind: str) -> None:
    (portal.data / "f.html").write_bytes(start)
    response = await portal.ask("GET", "/content?path=f.html&inline=1")
    assert response.headers["Content-Type"] == kind
    shown = kind != "application/octet-stream"
    assert response.headers["Content-Disposition"].startswith("inline" if shown else "attachment")
    saved = await portal.ask("GET", "/content?path=f.html")
    assert saved.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("name", ['a"b', "a\r\nSet-Cookie: x", "ä\u202etxt.exe", "%0d%0a", "a;b=c"])
async def test_no_name_breaks_out_of_a_header(portal: Portal, name: str) -> None:
    (portal.data / name).write_text("x")
    response = await portal.ask("GET", "/content", params={"path": name})
    assert response.status == 200
    assert "Set-Cookie" not in response.headers
    told = response.headers["Content-Disposition"]
    assert told.isascii() and told.count('"') == 2


async def test_an_upload_replaces_only_when_it_is_asked_to_and_keeps_the_mode(portal: Portal) -> None:
    (portal.data / "run.sh").write_text("old")
    os.chmod(portal.data / "run.sh", 0o755)
    (portal.data / "dir").mkdir()
    await portal.json("PUT", "/content?path=run.sh", 409, data=b"new")
    await portal.json("PUT", "/content?path=dir&overwrite=1", 409, data=b"new")
    await portal.json("PUT", "/content?path=none/f", 404, data=b"new")
    await portal.json("PUT", "/content?path=", 422, data=b"new")
    assert (portal.data / "run.sh").read_text() == "old"
    await portal.json("PUT", "/content?path=run.sh&overwrite=1", 201, data=b"new")
    assert (portal.data / "run.sh").read_text() == "new"
    assert (portal.data / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.listdir(portal.incoming) == []


async def test_a_file_is_written_where_it_is_read_through_links_inside_the_folder(
    portal: Portal, each_way: str
) -> None:
    (portal.data / "d").mkdir()
    (portal.data / "d/target").write_text("old")
    (portal.root / "secret").write_text("secret")
    links = {"link": "d/target", "way": "d", "d/up": "../link", "out": "../../../../secret", "dangling": "none"}
    for name, target in links.items():
        (portal.data / name).symlink_to(target)
    for number, path in enumerate(("link", "way/target", "d/up", "way/up")):
        await portal.json("PUT", f"/content?path={path}&overwrite=1", 201, data=b"%d" % number)
        assert (portal.data / "d/target").read_text() == str(number)
        assert await (await portal.ask("GET", f"/content?path={path}")).read() == b"%d" % number
    etag = (await portal.ask("GET", "/text?path=link")).headers["ETag"]
    await portal.json("PUT", "/text?path=link", data=b"edited", headers={"If-Match": etag})
    assert (portal.data / "d/target").read_text() == "edited"
    await portal.json("PUT", "/content?path=out&overwrite=1", 422, data=b"new")
    await portal.json("PUT", "/content?path=dangling&overwrite=1", 201, data=b"new")  # nothing is read there either
    await portal.json("POST", "/directories", 201, json={"path": "way/made"})
    await portal.json("POST", "/moves", json={"source": "way/made", "target": "d/moved"})
    await portal.json("POST", "/moves", json={"source": "way/target", "target": "d/target", "overwrite": True})
    (item,) = (await portal.json("POST", "/deletions", json={"paths": ["way/moved"]}))["items"]
    await portal.json("POST", f"/trash/{item['id']}/restore", json={})
    assert {name: os.readlink(portal.data / name) for name in ("link", "way", "d/up", "out")} == {
        name: target for name, target in links.items() if name != "dangling"
    }
    assert (portal.root / "secret").read_text() == "secret"
    assert sorted(os.listdir(portal.data / "d")) == ["moved", "target", "up"]
    await portal.json("POST", "/deletions", json={"paths": ["link"], "forever": True})  # a link itself, by its name
    assert (portal.data / "d/target").read_text() == "edited"


async def test_an_upload_that_is_cut_off_leaves_nothing(portal: Portal) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"x" * 2**20
        raise ConnectionResetError

    with pytest.raises(Exception):  # noqa: B017  (what the client calls its own broken connection)
        await portal.ask("PUT", "/content?path=f", data=half(), headers={"Content-Length": str(2**22)})
    listing = await portal.json("GET", "/entries")
    assert listing["entries"] == []
    while os.listdir(portal.incoming):
        await portal.json("GET", "/entry")  # the server notices in its own time; the test's own limit ends this


async def test_a_folder_takes_no_more_than_its_limit(portal: Portal) -> None:
    await portal.json("PUT", "/limit", rights="manage", version=2, json={"bytes": 1000})
    await portal.json("PUT", "/content?path=a", 201, data=b"x" * 600)
    refusal = await portal.json("PUT", "/content?path=b", 507, data=b"x" * 500)
    assert (refusal["code"], refusal["limit"], refusal["used"]) == ("quota", 1000, 600)

    async def unknown_length() -> AsyncIterator[bytes]:
        yield b"x" * 500

    await portal.json("PUT", "/content?path=b", 507, data=unknown_length())
    assert os.listdir(portal.data) == ["a"]
    assert os.listdir(portal.incoming) == []
    await portal.json("PUT", "/content?path=b", 201, data=b"x" * 400)


async def test_uploads_at_the_same_time_are_promised_no_more_than_there_is(portal: Portal) -> None:
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": 10_000_000})
    more = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        await more.wait()
        yield b"x" * 6_000_000

    async def put(name: str) -> int:
        headers = {"Content-Length": "8000000"}
        return (await portal.ask("PUT", f"/content?path={name}", data=body(), headers=headers)).status

    first = asyncio.create_task(put("first"))
    while portal.server.ledger.written(portal.folder_id).bytes < 1_000_000:
        await asyncio.sleep(0.01)
    refused = await portal.json("PUT", "/content?path=second", 507, data=b"y" * 3_000_000)
    assert (refused["code"], refused["limit"]) == ("quota", 10_000_000)
    await portal.json("PUT", "/content?path=small", 201, data=b"z" * 1_000_000)
    more.set()
    assert await first == 201
    assert sum(one.stat().st_size for one in portal.data.iterdir()) == 9_000_000


async def test_the_disk_is_full_in_the_middle(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = content.append, []

    def append(root: int, draft: content.Draft, data: bytes) -> None:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        real(root, draft, data)

    monkeypatch.setattr(content, "append", append)
    refusal = await portal.json("PUT", "/content?path=f", 507, data=BYTES)
    assert refusal["code"] == "disk-full"
    assert os.listdir(portal.data) == os.listdir(portal.incoming) == []
    assert portal.server.ledger.written(portal.folder_id).bytes == 0


async def test_a_text_is_saved_only_over_what_was_opened(portal: Portal, each_way: str) -> None:
    (portal.data / "t").write_text("one")
    opened = await portal.ask("GET", "/text?path=t")
    tag = opened.headers["ETag"]
    assert await opened.text() == "one"
    saved = await portal.ask("PUT", "/text?path=t", data="zwei ä".encode(), headers={"If-Match": tag})
    assert saved.status == 200
    late = await portal.ask("PUT", "/text?path=t", data=b"three", headers={"If-Match": tag})
    assert late.status == 412
    assert (portal.data / "t").read_text() == "zwei ä"
    more = await portal.ask("PUT", "/text?path=t", data=b"four", headers={"If-Match": saved.headers["ETag"]})
    assert more.status == 200


async def test_a_new_text_must_be_new_and_texts_are_small_and_utf8(portal: Portal) -> None:
    new = {"If-None-Match": "*"}
    await portal.json("PUT", "/text?path=t", data=b"x", headers=new)
    await portal.json("PUT", "/text?path=t", 412, data=b"x", headers=new)
    await portal.json("PUT", "/text?path=t", 428, data=b"x")
    await portal.json("PUT", "/text?path=u", 413, data=b"x" * (LARGEST_TEXT + 1), headers=new)
    await portal.json("PUT", "/text?path=u", 422, data=b"\xff", headers=new)
    (portal.data / "large").write_bytes(b"x" * (LARGEST_TEXT + 1))
    (portal.data / "binary").write_bytes(b"\xff\xff")
    assert (await portal.json("GET", "/text?path=large", 413))["limit"] == LARGEST_TEXT
    await portal.json("GET", "/text?path=binary", 422)
