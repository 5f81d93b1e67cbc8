"""Thirty times ``kill -9`` of a file server that writes, uploads, copies, unpacks, packs and deletes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
import urllib3

from backendai.base.paths.storage_layout import folder_path
from tests.files.test_kills import Process
from tests.files.test_kills import server as server
from tests.files.test_uploads import KIND, TUS, metadata

pytestmark = pytest.mark.long
KILLS = 30
_SIZES = (0, 100, 70_000, 3_000_000)


def content_of(name: str) -> bytes:
    """What a file of this name holds: whether it is whole can be seen by itself."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return random.Random(seed).randbytes(_SIZES[seed % len(_SIZES)])


class Work:
    """Threads that ask for changes until the server dies, and do not mind."""

    def __init__(self, server: Process, folder: uuid.UUID, turn: int) -> None:
        self.server, self.folder, self.turn, self.number = server, folder, turn, 0
        self.stopped = threading.Event()
        actions: tuple[Callable[[str], object], ...] = (
            self.put,
            self.upload,
            self.copy,
            self.unpack,
            self.pack,
            self.delete,
        )
        self.threads = [threading.Thread(target=self._repeat, args=(action,)) for action in actions]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def put(self, name: str) -> None:
        self.server.ask("PUT", f"/content?path={name}", self.folder, "edit", body=content_of(name))

    def upload(self, name: str) -> None:
        body = content_of(name)
        headers = {**TUS, **metadata(name), "Upload-Length": str(len(body))}
        place = self.server.ask("POST", "/uploads", self.folder, "edit", headers=headers).headers["Location"]
        headers = {**TUS, **KIND, "Upload-Offset": "0"}
        self.server.ask("PATCH", f"/uploads/{place[-32:]}", self.folder, "edit", headers=headers, body=body)

    def copy(self, name: str) -> None:
        source = f"copied-{uuid.uuid4().hex}"
        self.server.ask("PUT", f"/content?path={source}", self.folder, "edit", body=content_of(source))
        self.server.ask("POST", "/copies", self.folder, "edit", json={"source": source, "target": f"same-{source}"})

    def unpack(self, name: str) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for part in range(5):
                info = tarfile.TarInfo(f"in/{name}/{name}-{part}")
                info.size = len(content_of(f"{name}-{part}"))
                tar.addfile(info, io.BytesIO(content_of(f"{name}-{part}")))
        self.server.ask("PUT", "/archive", self.folder, "edit", body=archive.getvalue())

    def pack(self, name: str) -> None:
        self.server.ask("GET", "/archive?format=tar", self.folder, "view")

    def delete(self, name: str) -> None:
        self.server.ask("PUT", f"/content?path={name}", self.folder, "edit", body=content_of(name))
        self.server.ask("POST", "/deletions", self.folder, "edit", json={"paths": [name]})

    def _repeat(self, action: Callable[[str], object]) -> None:
        while not self.stopped.is_set():
            with suppress(urllib3.exceptions.HTTPError, OSError, KeyError):
                action(f"{action.__name__}-{self.turn}-{uuid.uuid4().hex}")


def files_in(directory: Path) -> Iterator[Path]:
    return (Path(top) / name for top, _, names in os.walk(directory) for name in names)


def test_nothing_half_is_seen_and_nothing_stays_behind(server: Process) -> None:
    folder, chance = uuid.uuid4(), random.Random(7)
    assert server.ask("PUT", "", folder, json={}).status == 201
    base = folder_path(server.root, folder)
    for turn in range(KILLS):
        work = Work(server, folder, turn)
        time.sleep(0.05 + chance.random() / 2)
        server.kill()
        work.end()
        whole = {path.name: path.read_bytes() for path in files_in(base / "data")}
        broken = [name for name, content in whole.items() if content != content_of(name.removeprefix("same-"))]
        assert not broken, (turn, broken)
        json.loads((base / "meta.json").read_text())
        server.start()
    assert len(whole) > KILLS  # the work came to something
    assert server.ask("GET", "", folder).json()["state"] == "ready"
    listed = server.ask("GET", "/trash?limit=1000", folder, "view").json()["items"]
    for item in listed[:20]:
        assert server.ask("POST", f"/trash/{quote(item['id'])}/restore", folder, "edit", json={}).status == 200
    assert server.ask("DELETE", "", folder).status == 202
    server.until(folder, "absent")
    assert not base.exists()
    assert os.listdir(server.root / ".deleting") == os.listdir(server.root / ".staging") == []
