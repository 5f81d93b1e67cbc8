"""Work that takes long: it has an answer at once, goes on without its caller, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from backendai.files.entries import changes as copying
from backendai.files.folders import operations
from tests.files.conftest import Portal

pytestmark = pytest.mark.asyncio
_SIZE = 5000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Copies stop before the bytes of a file until it is set; nobody waits long for an answer."""
    opened, copy = threading.Event(), copying._copy_bytes

    def wait_and_copy(*args: Any) -> None:
        opened.wait(60)
        copy(*args)

    monkeypatch.setattr(copying, "_copy_bytes", wait_and_copy)
    monkeypatch.setattr(operations, "ANSWERED_WITHIN", 0.05)
    yield opened
    opened.set()


async def begin_copy(portal: Portal) -> str:
    (portal.data / "large").write_bytes(b"x" * _SIZE)
    told = await portal.json("POST", "/copies", 202, json={"source": "large", "target": "copy"})
    operation = str(told["operation"])
    while told["state"] == "running" and told["progress"]["total_bytes"] is None:  # the tree is counted first
        told = await portal.json("GET", f"/operations/{operation}", rights="edit")
    assert (told["state"], told["progress"]["total_bytes"]) == ("running", _SIZE)
    return operation


async def ended(portal: Portal, operation: str) -> Any:
    while (told := await portal.json("GET", f"/operations/{operation}", rights="edit"))["state"] == "running":
        pass  # each answer waits a moment
    return told


async def test_a_copy_that_takes_long_is_followed_to_its_end(portal: Portal, gate: threading.Event) -> None:
    operation = await begin_copy(portal)
    assert [one["name"] for one in (await portal.json("GET", "/entries"))["entries"]] == ["large"]
    gate.set()
    told = await ended(portal, operation)
    assert (told["state"], told["result"], told["progress"]["bytes"]) == ("done", {"path": "copy"}, _SIZE)
    assert (portal.data / "copy").stat().st_size == _SIZE


async def test_a_copy_whose_caller_left_is_completed_and_counted(
    portal: Portal, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "ANSWERED_WITHIN", 60)
    (portal.data / "large").write_bytes(b"x" * _SIZE)
    caller = asyncio.create_task(portal.ask("POST", "/copies", json={"source": "large", "target": "copy"}))
    while not list(portal.incoming.iterdir()):
        await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    gate.set()
    while not (portal.data / "copy").exists() or portal.server.ledger.written(portal.folder_id).bytes < _SIZE:
        await asyncio.sleep(0.01)  # the test's own limit ends this


async def test_a_copy_that_is_stopped_leaves_nothing(portal: Portal, gate: threading.Event) -> None:
    operation = await begin_copy(portal)
    await portal.json("DELETE", f"/operations/{operation}")
    gate.set()
    assert (await ended(portal, operation))["state"] == "stopped"
    assert os.listdir(portal.data) == ["large"] and os.listdir(portal.incoming) == []
    assert portal.server.ledger.written(portal.folder_id).bytes == 0


async def test_what_goes_wrong_later_is_told_with_its_code(portal: Portal, gate: threading.Event) -> None:
    operation = await begin_copy(portal)
    (portal.data / "copy").write_text("somebody was faster")
    gate.set()
    told = await ended(portal, operation)
    assert (told["state"], told["error"]["status"], told["error"]["code"]) == ("failed", 409, "exists")
    assert (portal.data / "copy").read_text() == "somebody was faster"


async def test_an_operation_is_known_to_its_folder_only(portal: Portal, gate: threading.Event) -> None:
    operation = await begin_copy(portal)
    other = await portal.create(uuid.uuid4())
    for folder, name in ((other, operation), (portal.folder_id, "0" * 32)):
        answer = await portal.ask("GET", f"/operations/{name}", rights="edit", folder_id=folder)
        assert (answer.status, (await answer.json())["code"]) == (404, "no-operation")
    assert (await portal.ask("DELETE", f"/operations/{operation}", rights="view")).status == 403


async def test_many_deletions_cost_a_few_syncs(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"f{number}" for number in range(300)]
    for name in names:
        (portal.data / name).touch()
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor))[1])
    told = await portal.json("POST", "/deletions", json={"paths": [*names, "gone"]})
    assert [one["path"] for one in told["items"]] == names and len(synced) < 20
    assert os.listdir(portal.data) == []
    assert len((await portal.json("GET", "/trash?limit=1000"))["items"]) == 300


async def test_quick_operations_take_no_places_of_those_under_way(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "_MOST_UNDER_WAY", 2)
    for name in ("a", "b", "c"):
        (portal.data / name).touch()
        await portal.json("POST", "/deletions", json={"paths": [name]})
    assert os.listdir(portal.data) == []
    assert portal.client.app[operations.OPERATIONS]._known == {}


async def test_what_was_moved_before_a_sync_failed_stays_in_the_trash(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (portal.data / "kept").write_bytes(b"precious")
    rename, moved = os.rename, list[object]()
    monkeypatch.setattr(os, "rename", lambda *args, **more: (rename(*args, **more), moved.append(args))[0])
    sync = os.fsync

    def fail_after_the_move(descriptor: int) -> None:
        if moved and moved[-1][1] == b"entry":
            raise OSError(errno.EIO, "no more")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_after_the_move)
    assert (await portal.ask("POST", "/deletions", json={"paths": ["kept"]})).status >= 400
    monkeypatch.undo()
    [item] = (await portal.json("GET", "/trash?limit=10"))["items"]
    await portal.json("POST", f"/trash/{item['id']}/restore")
    assert (portal.data / "kept").read_bytes() == b"precious"


async def test_clones_that_take_long_hold_up_nothing_else(portal: Portal, gate: threading.Event) -> None:
    (portal.data / "large").write_bytes(b"x" * _SIZE)
    for _ in range(4):
        body = {"source": str(portal.folder_id)}
        await portal.json("POST", "/clones", 202, rights="manage", folder_id=uuid.uuid4(), json=body)
    other = await portal.create(uuid.uuid4())
    await portal.json("POST", "/measurements", 202, rights="manage", folder_id=other)
    while (await portal.json("GET", "", rights="manage", folder_id=other))["size"] is None:
        await asyncio.sleep(0.01)
    await portal.json("DELETE", "", 202, rights="manage", folder_id=other)
    while (await portal.json("GET", "", rights="manage", folder_id=other))["state"] != "absent":
        await asyncio.sleep(0.01)
