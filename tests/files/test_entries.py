"""What lies in a folder: lists, single entries, search, changes, the trash."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from urllib.parse import quote

import pytest

from backendai.base.paths.path_texts import encode_raw, text_of
from backendai.files.entries import listing as entries
from backendai.files.entries import long_lists
from tests.files.conftest import Portal, prepare, running, settings_for

pytestmark = pytest.mark.asyncio


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


async def test_a_list_has_directories_first_and_says_what_each_is(portal: Portal, each_way: str) -> None:
    fill(portal.data, "b", "a", "z/inner")
    (portal.data / "link").symlink_to("a")
    os.mkfifo(portal.data / "pipe")
    page = await portal.json("GET", "/entries?path=")
    assert [(one["name"], one["kind"]) for one in page["entries"]] == [
        ("z", "directory"),
        ("a", "file"),
        ("b", "file"),
        ("link", "link"),
        ("pipe", "other"),
    ]
    assert page["entries"][3]["target"] == "a"
    assert (page["total"], page["next"], page["sorted"]) == (5, None, True)


@pytest.mark.parametrize("sort", ["name", "size", "mtime"])
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_together_are_the_whole_list(portal: Portal, sort: str, order: str) -> None:
    names = [f"f{number:02}" for number in range(23)]
    for number, name in enumerate(names):
        (portal.data / name).write_bytes(b"x" * (number % 5))
        os.utime(portal.data / name, (number % 7, number % 7))
    fill(portal.data, "d1/x", "d2/x")
    seen: list[str] = []
    after = ""
    while True:
        page = await portal.json("GET", f"/entries?limit=7&sort={sort}&order={order}&after={after}")
        seen += [one["name"] for one in page["entries"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert sorted(seen) == sorted([*names, "d1", "d2"])
    assert set(seen[:2]) == {"d1", "d2"}
    if sort == "name":
        assert seen[2:] == (names if order == "asc" else names[::-1])
    if sort == "size":
        sizes = [(portal.data / name).stat().st_size for name in seen[2:]]
        assert sizes == sorted(sizes, reverse=order == "desc")


async def test_a_very_long_list_is_by_name_only_and_says_so(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MOST_SORTED", 3)
    fill(portal.data, "a", "bbb", "cc", "d")
    page = await portal.json("GET", "/entries?sort=size")
    assert page["sorted"] is False
    assert [one["name"] for one in page["entries"]] == ["a", "bbb", "cc", "d"]


async def test_a_cursor_of_another_order_and_other_nonsense_are_refused(portal: Portal) -> None:
    fill(portal.data, "a", "b", "c")
    page = await portal.json("GET", "/entries?limit=1")
    for query in (f"sort=size&after={page['next']}", "after=%20", "sort=colour", "limit=0", "limit=x", "order=up"):
        await portal.json("GET", f"/entries?{query}", 422)


async def test_names_that_are_not_utf8_are_shown_and_can_be_named(portal: Portal, each_way: str) -> None:
    name = b"caf\xe9"
    Path(os.fsdecode(os.fsencode(portal.data) + b"/" + name)).write_text("x")
    (entry,) = (await portal.json("GET", "/entries"))["entries"]
    assert entry["name"] == "caf\N{REPLACEMENT CHARACTER}"
    assert entry["raw"] == encode_raw(name)
    told = text_of(name)
    assert (await portal.json("GET", f"/entry?path={quote(told)}"))["name"] == entry["name"]
    await portal.json("POST", "/directories", 201, json={"path": "sub"})
    await portal.json("POST", "/copies", 201, json={"source": told, "into": "sub"})
    assert os.listdir(os.fsencode(portal.data / "sub")) == [name]
    await portal.json("POST", "/deletions", json={"paths": ["sub"], "forever": True})
    await portal.json("GET", "/entry?path=//raw:!", 422)
    await portal.json("POST", "/moves", json={"raw_source": entry["raw"], "target": "café"})
    assert os.listdir(portal.data) == ["café"]


async def test_search_looks_everywhere_in_any_case_and_follows_no_link(portal: Portal, each_way: str) -> None:
    fill(portal.data, "a/Model.pt", "b/c/model.bin", "other")
    (portal.data / "loop").symlink_to(".")
    found = await portal.json("GET", "/search?q=MODEL")
    assert sorted(one["path"] for one in found["entries"]) == ["a/Model.pt", "b/c/model.bin"]
    assert found["complete"] is True
    below = await portal.json("GET", "/search?q=model&path=b")
    assert [one["path"] for one in below["entries"]] == ["b/c/model.bin"]
    await portal.json("GET", "/search?q=", 422)


async def test_search_that_found_enough_says_that_it_is_not_complete(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_MOST_FOUND", 2)
    fill(portal.data, "x1", "x2", "x3", "x4")
    found = await portal.json("GET", "/search?q=x")
    assert (len(found["entries"]), found["complete"]) == (2, False)


async def test_directories_are_made_moved_and_copied(portal: Portal, each_way: str) -> None:
    await portal.json("POST", "/directories", 201, json={"path": "new"})
    await portal.json("POST", "/directories", 409, json={"path": "new"})
    await portal.json("POST", "/directories", 404, json={"path": "none/new"})
    fill(portal.data, "new/a", "new/sub/b")
    os.utime(portal.data / "new/a", (1000, 1000))
    os.chmod(portal.data / "new/sub/b", 0o755)
    (portal.data / "new/link").symlink_to("../outside")
    await portal.json("POST", "/copies", 201, json={"source": "new", "target": "copy"})
    assert (portal.data / "copy/sub/b").read_text() == "new/sub/b"
    assert (portal.data / "copy/sub/b").stat().st_mode & 0o777 == 0o755
    assert (portal.data / "copy/a").stat().st_mtime == 1000
    assert os.readlink(portal.data / "copy/link") == "../outside"
    await portal.json("POST", "/moves", json={"source": "copy/sub", "target": "moved"})
    assert (portal.data / "moved/b").exists() and not (portal.data / "copy/sub").exists()
    assert os.listdir(portal.incoming) == []


async def test_nothing_is_replaced_unless_it_is_asked_for(portal: Portal, each_way: str) -> None:
    fill(portal.data, "a", "b", "d/x", "e/y")
    for verb in ("/moves", "/copies"):
        for source, target in (("a", "b"), ("d", "e"), ("a", "d")):
            refusal = await portal.json("POST", verb, 409, json={"source": source, "target": target})
            assert refusal["code"] == "exists"
    await portal.json("POST", "/moves", json={"source": "a", "target": "b", "overwrite": True})
    assert (portal.data / "b").read_text() == "a"
    await portal.json("POST", "/copies", 201, json={"source": "d", "target": "e", "overwrite": True})
    assert os.listdir(portal.data / "e") == ["x"]
    (item,) = (await portal.json("GET", "/trash"))["items"]  # the directory that was replaced can be had back
    assert (item["path"], item["kind"]) == ("e", "directory")


@pytest.mark.parametrize(("source", "target"), [("d", "d/inner"), ("d/x", "d"), ("", "z"), ("d", "")])
async def test_nothing_is_moved_into_itself(portal: Portal, source: str, target: str) -> None:
    fill(portal.data, "d/x")
    for verb in ("/moves", "/copies"):
        await portal.json("POST", verb, 422, json={"source": source, "target": target, "overwrite": True})
    assert (portal.data / "d/x").exists()


async def test_what_is_deleted_can_be_restored_or_purged(portal: Portal, each_way: str) -> None:
    fill(portal.data, "a/x", "b", "c")
    deleted = await portal.json("POST", "/deletions", json={"paths": ["a/x", "b", "gone", "c"]})
    assert [one["path"] for one in deleted["items"]] == ["a/x", "b", "c"]
    (portal.data / "a").rmdir()
    items = {one["path"]: one["id"] for one in (await portal.json("GET", "/trash"))["items"]}
    await portal.json("POST", f"/trash/{items['a/x']}/restore")
    assert (portal.data / "a/x").read_text() == "a/x"
    fill(portal.data, "b")
    await portal.json("POST", f"/trash/{items['b']}/restore", 409)
    await portal.json("POST", f"/trash/{items['b']}/restore", json={"overwrite": True})
    await portal.json("DELETE", f"/trash/{items['c']}", 202)
    await portal.json("POST", f"/trash/{items['c']}/restore", 404)
    await portal.json("DELETE", "/trash", 202)
    assert (await portal.json("GET", "/trash"))["items"] == []
    await _settled(portal)
    assert os.listdir(portal.incoming.parent / "trash") == []


async def test_the_trash_comes_in_pages(portal: Portal) -> None:
    fill(portal.data, *"abcde")
    await portal.json("POST", "/deletions", json={"paths": list("abcde")})
    first = await portal.json("GET", "/trash?limit=3")
    second = await portal.json("GET", f"/trash?limit=3&after={first['next']}")
    assert sorted(one["path"] for one in first["items"] + second["items"]) == list("abcde")
    assert second["next"] is None


@pytest.mark.parametrize("item", ["..", "x", "0000000000000-aaaaaaaaaaaa", "%2e%2e", "..%2fdata"])
async def test_only_items_of_the_trash_can_be_named(portal: Portal, item: str) -> None:
    fill(portal.data, "a")
    assert (await portal.ask("DELETE", f"/trash/{item}")).status in (404, 405)
    assert (portal.data / "a").exists()


async def _settled(portal: Portal) -> None:
    while tasks := list(portal.server.tasks):
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_long_list_is_read_once_and_again_when_it_changes(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    monkeypatch.setattr(long_lists, "_LONG", 3)
    monkeypatch.setattr(long_lists, "_SETTLED_NS", -1)
    real = long_lists._read
    monkeypatch.setattr(long_lists, "_read", lambda one, most: reads.append(one) or real(one, most))
    fill(portal.data, "a", "b", "c", "d/x")
    page = await portal.json("GET", "/entries?limit=2")
    following = await portal.json("GET", f"/entries?limit=2&after={page['next']}")
    assert [one["name"] for one in (*page["entries"], *following["entries"])] == ["d", "a", "b", "c"]
    assert following["next"] is None and len(reads) == 1
    turned = await portal.json("GET", "/entries?order=desc&sort=size")
    assert len(turned["entries"]) == 4 and len(reads) == 1
    while len(reads) == 1:  # until the clock of the file system has moved on
        fill(portal.data, "e")
        (portal.data / "b").unlink(missing_ok=True)
        (portal.data / "b").write_text("")
        await portal.json("GET", "/entries")
    names = [one["name"] for one in (await portal.json("GET", "/entries"))["entries"]]
    assert names == ["d", "a", "b", "c", "e"]


async def test_a_list_that_just_changed_is_not_kept(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lists, "_LONG", 1)
    monkeypatch.setattr(long_lists, "_SETTLED_NS", 10**15)
    for number in range(50):
        fill(portal.data, f"f{number:02}")
        page = await portal.json("GET", "/entries?limit=1000")
        assert len(page["entries"]) == number + 1


async def test_a_directory_without_write_permission_is_moved_and_named(tmp_path: Path) -> None:
    owner = os.geteuid() or 1000
    root = prepare(tmp_path / "host", uid=owner)
    tmp_path.chmod(0o755)
    os.chown(root, owner, owner)
    async with running(settings_for(root)) as portal:
        await portal.create()
        for name in ("pkg", "pkg/mod@v1", "pkg/mod@v2", "pkg/mod@v3", "pkg/mod@v1/sub"):
            (portal.data / name).mkdir()
            os.chown(portal.data / name, owner, owner)
        for path in (portal.data / "pkg").iterdir():
            path.chmod(0o555)
        await portal.json("POST", "/moves", json={"source": "pkg/mod@v1", "target": "moved"})
        (item,) = (await portal.json("POST", "/deletions", json={"paths": ["pkg/mod@v2"]}))["items"]
        await portal.json("POST", f"/trash/{item['id']}/restore", json={})
        await portal.json("POST", "/deletions", json={"paths": ["pkg/mod@v3"], "forever": True})
        assert sorted(os.listdir(portal.data / "pkg")) == ["mod@v2"]
        assert stat.S_IMODE((portal.data / "moved").stat().st_mode) == 0o555
        assert stat.S_IMODE((portal.data / "pkg/mod@v2").stat().st_mode) == 0o555
        for way, told in (("/deletions", {"paths": ["moved/sub"]}), ("/moves", {"source": "moved/sub", "target": "x"})):
            refusal = await portal.json("POST", way, 403, json=told)
            assert (refusal["code"], refusal["message"][:7]) == ("not-permitted", "moved: ")
