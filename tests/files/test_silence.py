"""Disks that do not answer, and disks that are full: one host suffers, the others go on."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from backendai.base.paths.storage_layout import MARKER, folder_path
from backendai.files import hosts
from backendai.files.entries import listing as entries
from backendai.files.entries.tree import FolderTree
from backendai.files.workers import Call, Workers
from tests.files.conftest import Portal, prepare, running, settings_for

pytestmark = pytest.mark.asyncio
LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2


@contextmanager
def mounted(kind: str, where: Path, options: str) -> Iterator[None]:
    """A file system, as long as root lets us mount it."""
    if LIBC.mount(kind.encode(), str(where).encode(), kind.encode(), 0, options.encode()):
        pytest.skip(f"cannot mount {kind} here: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        LIBC.umount2(str(where).encode(), _DETACH)


@contextmanager
def by_a_lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The host's marker cannot be read until it is let go."""
    real, free = hosts.read_marker, threading.Event()

    def hang(path: Path, **told: str) -> object:
        if path == root:
            free.wait(60)
        return real(path, **told)

    monkeypatch.setattr(hosts, "read_marker", hang)
    try:
        yield free.set
    finally:
        free.set()


@contextmanager
def by_fuse(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A file system over the host's whose program never answers."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse")
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    ended = False

    def end() -> None:
        nonlocal ended
        if not ended:
            ended = True
            LIBC.umount2(str(root).encode(), _DETACH)
            os.close(device)  # a waiting reader gets an error now

    if LIBC.mount(b"fuse", str(root).encode(), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip(f"cannot mount fuse here: {os.strerror(ctypes.get_errno())}")
    try:
        yield end
    finally:
        end()


@pytest.mark.parametrize("hanging", [by_a_lock, by_fuse])
async def test_a_host_that_hangs_is_refused_while_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: Callable[..., object]
) -> None:
    bad, good = prepare(tmp_path / "bad", "bad"), prepare(tmp_path / "good", "good")
    async with running(settings_for(bad, hosts={"bad": bad, "good": good})) as portal:
        sick = Portal(portal.client, portal.server, bad, host="bad")
        well = Portal(portal.client, portal.server, good, host="good")
        await sick.create()
        await well.create()
        with hanging(bad, monkeypatch) as let_go:  # type: ignore[attr-defined]
            waiting = [asyncio.create_task(sick.ask("GET", "/entries")) for _ in range(20)]
            waiting += [asyncio.create_task(sick.ask("PUT", f"/content?path={n}", data=b"x")) for n in range(5)]
            await well.json("PUT", "/content?path=f", 201, data=b"x")
            began = time.monotonic()
            for response in await asyncio.gather(*waiting):
                assert (response.status, (await response.json())["code"]) == (503, "storage-silent")
            # Refused by the server's own clock, not because the client gave up: the tests' client waits for minutes.
            assert time.monotonic() - began < 60
            assert portal.server.hosts["bad"].silent
            for _ in range(30):
                assert (await sick.ask("GET", "/entries")).status == 503
            assert portal.server.hosts["bad"].stuck() <= 10
            await well.json("GET", "/entries")
            told = await (await portal.client.get("/health")).json()
            assert {one["host"]: one["ok"] for one in told["hosts"]} == {"bad": False, "good": True}
            let_go()
            while (await sick.ask("GET", "/entries")).status != 200:
                await asyncio.sleep(0.05)


async def test_a_slow_call_on_a_disk_that_answers_is_waited_for(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_PROBE_AFTER", 0.1)
    monkeypatch.setattr(hosts, "_SILENT_AFTER", 0.1)
    slow = threading.Event()
    timer = threading.Timer(1.0, slow.set)
    timer.start()
    host = portal.server.hosts["local"]
    assert await host.run(lambda root: slow.wait(60)) is True
    assert not host.silent


async def test_work_whose_asker_left_has_ended_before_what_follows(portal: Portal) -> None:
    host, free, steps = portal.server.hosts["local"], threading.Event(), []
    has_begun = threading.Event()

    def work(root: int) -> None:
        has_begun.set()
        free.wait(60)
        steps.append("work")

    task = asyncio.create_task(host.run(work))
    while not has_begun.is_set():
        await asyncio.sleep(0.01)
    task.cancel()
    threading.Timer(0.2, free.set).start()
    with pytest.raises(asyncio.CancelledError):
        await task
    steps.append("after")
    assert steps == ["work", "after"]


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, name: str, folder_id: UUID) -> Iterator[list[str]]:
    """A function of ``entries`` waits in this folder; yields the calls that wait or have waited."""
    free, begun, real = threading.Event(), list[str](), getattr(entries, name)

    def work(tree: FolderTree, *args: object, **more: object) -> object:
        if tree.meta.id == str(folder_id):
            begun.append(threading.current_thread().name)
            free.wait(60)
        return real(tree, *args, **more)

    monkeypatch.setattr(entries, name, work)
    try:
        yield begun
    finally:
        free.set()


@pytest.mark.parametrize(("name", "path", "threads"), [("read_page", "/entries", 2), ("search", "/search?q=x", 1)])
async def test_who_asks_much_delays_nobody_else(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, name: str, path: str, threads: int
) -> None:
    neighbour, host = await portal.create(uuid.uuid4()), portal.server.hosts["local"]
    with held(monkeypatch, name, portal.folder_id) as begun:
        many = [asyncio.create_task(portal.ask("GET", path)) for _ in range(30)]
        while len(host._quick._calls) + len(host._long._calls) < 30:
            await asyncio.sleep(0.01)
        for _ in range(5):
            assert (await portal.ask("GET", path, folder_id=neighbour)).status == 200
        assert len(begun) == threads
    answers = await asyncio.gather(*many)
    assert [answer.status for answer in answers] == [200] * 30
    assert host.stuck() == 0


async def test_very_large_directories_are_listed_by_the_threads_for_long_work(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    real = entries.names_of

    def read(*args: Any) -> Any:
        used.append(threading.current_thread().name.rpartition("-")[0])
        return real(*args)

    monkeypatch.setattr(entries, "names_of", read)
    monkeypatch.setattr(entries, "MOST_SORTED", 3)
    for number in range(4):
        (portal.data / str(number)).touch()
        assert (await portal.json("GET", "/entries"))["total"] == number + 1
    assert used == ["local-quick"] * 4 + ["local-long"]


async def test_a_call_whose_asker_left_before_its_turn_never_starts(portal: Portal) -> None:
    host, free, steps = portal.server.hosts["local"], threading.Event(), list[int]()

    async def ask(number: int) -> None:
        hosts.VISITOR.set("one")
        await host.run(lambda root: (free.wait(60), steps.append(number)))

    tasks = [asyncio.create_task(ask(number)) for number in range(4)]
    while host.stuck() < 2:
        await asyncio.sleep(0.01)
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]  # at once, although no thread is free
    free.set()
    await asyncio.gather(*(tasks[number] for number in (0, 1, 3)))
    assert sorted(steps) == [0, 1, 3]


async def test_a_person_with_many_folders_is_one_visitor(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = Workers.submit

    def submit(self: Workers, work: Callable[[], Any], visitor: str = "") -> Call:
        seen.append(visitor)
        return real(self, work, visitor)

    other = await portal.create(uuid.uuid4())
    monkeypatch.setattr(Workers, "submit", submit)
    for folder_id, account in ((portal.folder_id, "x@y.z"), (other, "x@y.z"), (other, "")):
        ticket = portal.ticket("view", folder_id=folder_id, account=account)
        await portal.json("GET", "/entries", folder_id=folder_id, headers={"Authorization": f"Bearer {ticket}"})
    assert seen == ["x@y.z", "x@y.z", str(other)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_full_disk_is_said_and_keeps_nothing_of_what_did_not_fit(tmp_path: Path) -> None:
    root = tmp_path / "small"
    root.mkdir()
    with mounted("tmpfs", root, "size=4m"):
        prepare(root)
        async with running(settings_for(root)) as portal:
            await portal.create()
            await portal.json("PUT", "/content?path=fits", 201, data=bytes(2**20))
            refusal = await portal.json("PUT", "/content?path=not", 507, data=bytes(8 * 2**20))
            assert refusal["code"] == "disk-full"
            assert (await portal.json("POST", "/copies", 201, json={"source": "fits", "target": "twice"}))["path"]
            assert (await portal.ask("PUT", "/content?path=two", data=bytes(2**20))).status == 201
            full = await portal.json("POST", "/copies", 507, json={"source": "fits", "target": "thrice"})
            assert full["code"] == "disk-full"
            assert sorted(os.listdir(portal.data)) == ["fits", "twice", "two"]
            assert os.listdir(portal.incoming) == []
            while True:  # reading and deleting work to the last byte
                try:
                    with (portal.data / "filler").open("ab", buffering=0) as filler:
                        filler.write(bytes(4096))
                except OSError:
                    break
            assert (await portal.ask("GET", "/content?path=fits")).status == 200
            await portal.json("POST", "/deletions", json={"paths": ["fits"], "forever": True})
            assert "fits" not in os.listdir(portal.data)
            await portal.json("DELETE", "", 202, rights="manage")
            while folder_path(root, portal.folder_id).exists() or os.listdir(root / ".deleting"):
                await asyncio.sleep(0.01)
    assert MARKER not in os.listdir(root)
