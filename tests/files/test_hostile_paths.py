"""Hundreds of hostile paths in every operation of the file server: nothing outside the folder is read or changed."""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from backendai.base.paths import packing
from backendai.base.paths.beneath import Parts
from backendai.base.paths.path_texts import encode_raw
from backendai.base.paths.storage_layout import TRASH, folder_path
from backendai.files.entries import changes, content, unpacking, uploads
from backendai.files.entries import listing as entries
from backendai.files.entries.tree import FolderTree, opened_folder, opened_part, write_json
from backendai.files.entries.unpacking import Item
from backendai.files.folders import lifecycle, trash
from backendai.files.folders.removal import remove_tree
from backendai.files.http import archives as archive_views
from backendai.files.http.serving import body_path
from backendai.files.limits.quota import NOTHING, Held, Ledger
from backendai.files.refusals import as_refusal
from tests.files.conftest import Portal
from tests.files.hostile import SECRET, bytes_of_path, fill, hostile_paths, make_secrets, picture
from tests.files.test_uploads import TUS

FOLDER, NOW = UUID(int=1), 1.0


def ignore(count: int) -> None:
    """Progress that nobody watches."""


def read(tree: FolderTree, parts: Parts) -> object:
    with content.open_content(tree, parts).file as file:
        return file.read()


def write(tree: FolderTree, parts: Parts) -> object:
    content.check_target(tree, parts, overwrite=True)
    draft = content.begin(tree)
    try:
        content.append(-1, draft, b"new")
        return content.finish(tree, draft, parts, overwrite=True, now=NOW)
    finally:
        content.discard(tree, draft)


def upload(tree: FolderTree, parts: Parts) -> object:
    begun = uploads.create(tree, parts, 3, overwrite=True)
    try:
        at_start, file = uploads.open_at(tree, begun.id, 0)
        with file:
            uploads.write(-1, file, b"new")
            whole = uploads.sync(tree, at_start, file, 3)
        uploads.finish(tree, whole, now=NOW)
        return None
    finally:
        with suppress(Exception):
            uploads.remove(tree, begun.id)


def search(tree: FolderTree, parts: Parts) -> object:
    told: dict[str, Any] = {"until": 1e99, "stopped": threading.Event(), "clock": lambda: 0.0}
    return entries.search(tree, parts, "f", **told)


def forever(tree: FolderTree, parts: Parts) -> object:
    trash.remove_hidden(tree, [trash.hide_path(tree, parts)])
    return None


def restore(tree: FolderTree, parts: Parts) -> object:
    """Restore an item whose description names the path."""
    os.close(os.open("restored", os.O_WRONLY | os.O_CREAT, dir_fd=tree.data))
    item = trash.put_into_trash(tree, (b"restored",), now=NOW)
    try:
        with opened_part(tree.base, TRASH) as place:
            path = base64.b64encode(b"/".join(parts)).decode()
            directory = os.open(item, os.O_RDONLY, dir_fd=place)
            write_json(directory, "info.json", {"path": path}, is_synced=False)
            os.close(directory)
        return trash.restore(tree, item, overwrite=True, now=NOW)
    finally:
        with suppress(Exception):
            trash.remove_hidden(tree, [trash.hide_item(tree, item)])


def unpacked(tree: FolderTree, item: Item) -> unpacking.Outcome:
    with Ledger().room(FOLDER, Held(tree.meta, None), NOTHING) as room:
        return unpacking.put(tree, [item], unpacking.ALL, room)


def unpack(item: Item) -> Callable[[FolderTree, Parts], object]:
    def put(tree: FolderTree, parts: Parts) -> object:
        if not parts:
            return None  # the folder itself is passed over
        told: dict[str, Any] = {"kind": item.kind, "data": item.data, "target": item.target, "size": item.size}
        outcome = unpacked(tree, Item(parts, mode=0o644, mtime=0, **told))
        return [one["code"] for one in outcome.refused]

    return put


def zipped(tree: FolderTree, parts: Parts) -> object:
    return b"".join(archive_views._begin(tree, [parts], packing.Zip()))


def tarred(tree: FolderTree, parts: Parts) -> object:
    return b"".join(archive_views._begin(tree, [parts], packing.Tar()))


Operation = Callable[[FolderTree, Parts], object]
READ: dict[str, Operation] = {
    "list": lambda tree, parts: entries.read_page(tree, parts, entries.Order()),
    "show": entries.read_entry,
    "read": read,
    "read text": content.read_text,
    "search": search,
    "size": entries.amount_below,
    "zip": zipped,
    "tar": tarred,
}
CHANGE: dict[str, Operation] = {
    "restore": restore,
    "write": write,
    "write text": lambda tree, parts: content.write_text(tree, parts, b"new", expected="*", now=NOW),
    "upload": upload,
    "copy from": lambda tree, parts: changes.copy(tree, parts, (b"new",), overwrite=True, now=NOW, written=ignore),
    "move from": lambda tree, parts: changes.move(tree, parts, (b"new",), overwrite=True, now=NOW),
    "move to": lambda tree, parts: changes.move(tree, (b"new",), parts, overwrite=True, now=NOW),
    "copy to": lambda tree, parts: changes.copy(tree, (b"d",), parts, overwrite=True, now=NOW, written=ignore),
    "delete": lambda tree, parts: trash.put_into_trash(tree, parts, now=NOW),
    "unpack a link": unpack(Item((), "link", 0, 0, target=b"d")),
    "delete for ever": forever,
    "make directory": changes.make_directory,
    "unpack a directory": unpack(Item((), "directory", 0, 0)),
    "unpack a file": unpack(Item((), "file", 0, 0, data=b"new", size=3)),
}


def path_of(path: str | bytes) -> Parts:
    return body_path({"path": path} if isinstance(path, str) else {"raw_path": encode_raw(path)})


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
def test_no_operation_leaves_the_folder_by_any_path(
    step: int, root: Path, each_way: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # 10,000 changes would wait for the disk
    monkeypatch.setattr(changes.beneath, "sync_all", lambda directory: None)
    top = os.open(root, os.O_RDONLY)
    lifecycle.create(top, FOLDER, 1, {})
    make_secrets(top, root)
    data, secrets = folder_path(root, FOLDER) / "data", root.parent
    fill(data)
    pristine = tmp_path_factory.mktemp("pristine") / "data"
    shutil.copytree(data, pristine, symlinks=True)
    before, tried = picture(secrets, folder_path(root, FOLDER)), 0
    meta = (data.parent / "meta.json").read_bytes()
    with opened_folder(top, FOLDER, ()) as tree:
        for kind, path in list(hostile_paths())[::step]:
            has_changed = False
            for name, operation in itertools.chain(READ.items(), CHANGE.items(), READ.items()):
                tried += 1
                case = f"{name} {path!r} ({kind})"
                answer, is_refused = attempt(tree, operation, path, case)
                assert SECRET not in answer and b"root:x:0" not in answer, case
                assert is_refused or kind == "name" or (kind == "link" and name not in REFUSED_FOR_LINKS), case
                has_changed |= name in CHANGE and not is_refused
                if has_changed and kind != "name":  # a link that was replaced by a file does not lead out any more
                    renew(tree, pristine, data)
            assert picture(secrets, folder_path(root, FOLDER)) == before, path
            if has_changed:
                renew(tree, pristine, data)
    assert (data.parent / "meta.json").read_bytes() == meta
    assert sorted(os.listdir(data.parent)) == ["data", "incoming", "meta.json", "trash"]
    assert tried == len(list(hostile_paths())[::step]) * (2 * len(READ) + len(CHANGE))
    os.close(top)


REFUSED_FOR_LINKS = ("list", "read", "read text", "search", "make directory")


def attempt(tree: FolderTree, operation: Operation, path: str | bytes, case: str) -> tuple[bytes, bool]:
    """Return what an operation says, and whether that is a refusal: always one with a status of 4xx."""
    try:
        answer = operation(tree, path_of(path))
    except Exception as error:
        refusal = as_refusal(error)
        assert refusal is not None and 400 <= refusal.status < 500 and refusal.message, (case, error)
        return refusal.message.encode(), True
    is_refused = isinstance(answer, list) and answer != []  # members of an archive are refused one by one
    return (answer if isinstance(answer, bytes) else repr(answer).encode()), is_refused


def renew(tree: FolderTree, pristine: Path, data: Path) -> None:
    """Make the folder as it was."""
    for name in os.listdir(tree.data):
        remove_tree(tree.data, os.fsencode(name))
    shutil.copytree(pristine, data, symlinks=True, dirs_exist_ok=True)


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../f", "d/../../f", "a/b/../../../f", "", "/", "\0", "./.."])
def test_a_link_of_an_archive_that_leads_out_is_refused(root: Path, target: str) -> None:
    top = os.open(root, os.O_RDONLY)
    lifecycle.create(top, FOLDER, 1, {})
    with opened_folder(top, FOLDER, ()) as tree:
        item = Item((b"link",), "link", 0o644, 0, target=target.encode())
        assert [one["code"] for one in unpacked(tree, item).refused] == ["link-refused"]
        assert os.listdir(tree.data) == []
    os.close(top)


QUERIES = [
    *(("GET", f"/{verb}?{{}}") for verb in ("entries", "entry", "content", "text", "archive")),
    *(("GET", "/archive?format=tar&{}"), ("HEAD", "/content?{}"), ("GET", "/search?q=x&{}")),
    *(("PUT", "/content?overwrite=1&{}"), ("PUT", "/text?{}")),
]


SPELLED_AS_TEXT = ("\ud800", "d/\udfff", "f\udc80", "//raw:Li4v/f", "//raw:!")  # their bytes are other paths


def spellings(path: str | bytes) -> Iterator[str]:
    """Yield a path as queries may name it."""
    raw = bytes_of_path(path)
    yield f"path={quote(raw, safe='')}"
    yield f"raw_path={encode_raw(raw)}"


@pytest.mark.asyncio
async def test_over_http_every_route_refuses_what_leads_out(portal: Portal) -> None:
    fill(portal.data)
    refused = [path for kind, path in hostile_paths() if kind == "refused" and path not in SPELLED_AS_TEXT]
    for path in ["/etc/passwd", "../meta.json", "nul\0", "x" * 256, "abs/passwd", "up/meta.json", *refused[::23]]:
        for named in spellings(path):
            for method, where in QUERIES:
                more: dict[str, Any] = {"headers": {"If-None-Match": "*"}, "data": b"x"} if method == "PUT" else {}
                response = await portal.ask(method, where.format(named), **more)
                assert 400 <= response.status < 500, (path, method, where, await response.text())
        raw = {"raw": encode_raw(bytes_of_path(path))}
        told = [("/directories", {"raw_path": raw["raw"]}), ("/deletions", {"paths": [raw]})]
        for verb in ("/moves", "/copies"):
            told.append((verb, {"raw_source": raw["raw"], "target": "new", "overwrite": True}))
            told.append((verb, {"source": "f", "raw_target": raw["raw"], "overwrite": True}))
        told.append(("/copies", {"source": "f", "raw_into": raw["raw"]}))
        for where, body in told:
            response = await portal.ask("POST", where, json=body)
            assert 400 <= response.status < 500 or await response.json() == {"items": []}, (path, where)
        encoded = base64.b64encode(bytes_of_path(path)).decode()
        headers = {**TUS, "Upload-Length": "1", "Upload-Metadata": f"path {encoded}"}
        assert 400 <= (await portal.ask("POST", "/uploads", headers=headers)).status < 500, path
    for item in ("..", "%2e%2e", "..%2f..%2fdata", "x", "0" * 26, "%00"):
        for method, where in (("POST", f"/trash/{item}/restore"), ("DELETE", f"/trash/{item}")):
            assert (await portal.ask(method, where, json={})).status in (404, 405), item
        assert (await portal.ask("HEAD", f"/uploads/{item}", headers=TUS, rights="edit")).status == 404
    assert os.listdir(portal.incoming) == []
