"""Disks that do not answer, and disks that are full: one host suffers, the others go on."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backendai.core.storage_layout import MARKER, folder_path
from backendai.files import hosts
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
