"""Thirty times ``kill -9`` of file server, app proxy and agent while a folder is written, cloned and deleted from."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.patience import until
from tests.system.client import Body, Client, fresh
from tests.system.platform import Platform
from tests.system.test_folders import Lab, ask
from tests.system.test_folders import lab as lab

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(900)]
_TUS = {"Tus-Resumable": "1.0.0"}
_PART = {**_TUS, "Content-Type": "application/offset+octet-stream"}
TURNS, KILLED = 10, ("files", "appproxy", "agent-1")  # the supervisor waits up to 30 s before a start


def content_of(name: str) -> bytes:
    """What a file of this name holds: whether it is whole can be seen by itself."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return random.Random(seed).randbytes((1000, 70_000, 3_000_000)[seed % 3])


class Work:
    """Threads that upload, clone and delete until they are told to end, and mind no broken connection."""

    def __init__(self, lab: Lab, folder: str) -> None:
        self.lab, self.folder = lab, folder
        self.whole: set[str] = set()  # the server has said that these are there
        self.cloned = self.deleted = 0
        self._over = threading.Event()
        deeds: tuple[Callable[[], None], ...] = (self._upload, self._upload, self._put, self._clone, self._delete)
        self._threads = [threading.Thread(target=self._repeat, args=(deed,)) for deed in deeds]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let each end what it is at."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, deed: Callable[[], None]) -> None:
        while not self._over.is_set():
            with suppress(requests.RequestException, AssertionError, KeyError, ValueError):
                deed()
            time.sleep(0.1)

    def _ask(self, method: str, path: str, **more: Any) -> requests.Response:
        return self.lab.files(self.lab.alice, self.folder, method, path, **more)

    def _upload(self) -> None:
        """Send a file in two parts, and go on where it was safe until it is there."""
        name = f"up-{uuid4().hex}"
        body, path = content_of(name), base64.b64encode(name.encode()).decode()
        begin = {**_TUS, "Upload-Length": str(len(body)), "Upload-Metadata": f"path {path}"}
        made = self._ask("POST", "/uploads", headers=begin)
        assert made.status_code == 201
        address, middle = made.headers["Location"], len(body) // 2
        for _ in range(100):
            with suppress(requests.RequestException):
                told = self._ask("HEAD", address, headers=_TUS)
                at = int(told.headers["Upload-Offset"])
                if at == len(body):  # its last answer was lost
                    self.whole.add(name)
                    return
                end = middle if at < middle else len(body)
                sent = self._ask("PATCH", address, headers={**_PART, "Upload-Offset": str(at)}, data=body[at:end])
                if sent.status_code == 204 and end == len(body):
                    self.whole.add(name)
                    return
            time.sleep(0.2)

    def _put(self) -> None:
        name = f"put-{uuid4().hex}"
        if self._ask("PUT", f"/content?path={name}", data=content_of(name)).status_code == 201:
            self.whole.add(name)

    def _clone(self) -> None:
        alice, name = self.lab.alice, f"c-{uuid4().hex[:12]}"
        made = ask(alice, "POST", f"folders/{self.folder}/clone/", {"name": name})
        assert made.status_code == 201
        self.cloned += 1
        clone = made.json()["id"]
        if self.cloned % 2:
            until(lambda: self._over.is_set() or alice.folder(clone)["status"] == "READY", 120, "the clone is ready")
        assert ask(alice, "DELETE", f"folders/{clone}/").ok
        assert ask(alice, "POST", f"folders/{clone}/purge/", {"name": name}).ok

    def _delete(self) -> None:
        gone = sorted(self.whole)[:3]
        self.whole.difference_update(gone)
        if gone and self._ask("HEAD", "/content?path=x") is not None:
            answer = ask(self.lab.alice, "POST", f"folders/{self.folder}/deletions/", {"paths": gone})
            assert answer.ok
            self.deleted += len(gone)


def test_nothing_is_lost_by_thirty_kills_of_file_server_proxy_and_agent(lab: Lab) -> None:
    alice, platform = lab.alice, lab.platform
    folder = alice.post("folders/", {"name": fresh("kills")})["id"]
    until(lambda: alice.folder(folder)["is_reachable"], 30, "an agent mounts it")
    writer = lab.launch(alice, "writer", lab.first, mounts=[{"folder": folder, "target": "k"}])
    with alice.terminal(writer["id"]) as terminal:
        loop = "while sleep 0.1; do n=$((n+1)); mkdir -p ~/k/s; echo line-$n > ~/k/s/$n; done >/dev/null 2>&1 &"
        terminal.run(f"({loop}) ; echo going-$((1+1))", "going-2")
    work, chance = Work(lab, folder), random.Random(11)
    try:
        for _ in range(TURNS):
            former = {}
            for role in KILLED:
                former[role] = platform.kill(role)
                time.sleep(chance.random())
            for role, pid in former.items():
                platform.wait_for_restart(role, pid)
            time.sleep(2 + chance.random())  # work is under way when the next one is killed
    finally:
        work.end()
    assert work.cloned > 2 and work.deleted and len(work.whole) + work.deleted > 3 * TURNS
    listed = {one["name"] for one in _all_entries(lab, folder)}
    assert work.whole <= listed, work.whole - listed
    for name in sorted(name for name in listed if name != "s"):
        answer = lab.files(alice, folder, "GET", f"/content?path={name}")
        assert answer.content == content_of(name), name
    alice.end(writer["id"])
    until(lambda: not _busy(alice), 120, "clones and removals have ended", last=lambda: _busy(alice))
    platform.audit()
    kept = {path.name for shelf in (platform.data / "folders").glob("??") for path in shelf.iterdir()}
    known = {one["id"] for one in _folders(alice)} | {one["id"] for one in _folders(platform.client)}
    assert kept <= known, "no directory is left of a folder that is gone"
    assert [name for name in os.listdir(platform.data / "folders") if name.startswith(".")] != []
    for place in (".staging", ".deleting"):
        until(lambda place=place: not _names(platform, place), 60, f"{place} is empty")


def _folders(who: Client) -> list[Body]:
    return list(ask(who, "GET", "folders/?page_size=100").json()["results"])


def _busy(who: Client) -> list[str]:
    return [one["name"] for one in _folders(who) if one["status"] in ("CREATING", "DELETING")]


def _all_entries(lab: Lab, folder: str) -> list[Body]:
    found: list[Body] = []
    path = first = f"folders/{folder}/entries/?limit=1000"
    while True:
        page = ask(lab.alice, "GET", path).json()
        found += page["entries"]
        if not page["next"]:
            return found
        path = f"{first}&after={page['next']}"


def _names(platform: Platform, place: str) -> list[str]:
    path = platform.data / "folders" / place
    return os.listdir(path) if path.is_dir() else []
