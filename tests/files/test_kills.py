"""``kill -9`` of a real file server in the middle of an upload, a clone and a removal."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import urllib3

from backendai.base.paths.storage_layout import folder_path
from backendai.base.wire.folder_tickets import sign_folder_ticket
from backendai.base.wire.tickets import public_key_of
from tests.files.conftest import DEPLOYMENT, PRIVATE_KEY, prepare
from tests.files.test_uploads import KIND, TUS, metadata

ROOT = Path(__file__).resolve().parents[2]
POINTS = 2


class Process:
    """A file server of its own, which can be killed and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.http = urllib3.PoolManager(retries=False)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "BACKENDAI_STORAGE_HOSTS": f"local={root}",
            "BACKENDAI_FILES_BIND": f"127.0.0.1:{self.port}",
            "BACKENDAI_FILES_PUBLIC_KEY": public_key_of(PRIVATE_KEY),
            "BACKENDAI_DEPLOYMENT": DEPLOYMENT,
        }
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "backendai.files"]
        self.process = subprocess.Popen(command, env=self.environ, cwd="/", stderr=subprocess.DEVNULL)
        while True:
            try:
                if self.http.request("GET", f"http://127.0.0.1:{self.port}/health").status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                assert self.process.poll() is None
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, method: str, path: str, folder: UUID, rights: Any = "manage", **more: Any) -> Any:
        version = 2 if (method, path) == ("DELETE", "") else 1  # only a newer order deletes
        told = {"host": "local", "folder_id": folder, "version": version, "rights": rights, "now": time.time()}
        headers = {"Authorization": f"Bearer {sign_folder_ticket(PRIVATE_KEY, **told)}", **more.pop("headers", {})}
        url = f"http://127.0.0.1:{self.port}/v1/folders/{folder}{path}"
        return self.http.request(method, url, headers=headers, **more)

    def until(self, folder: UUID, *states: str) -> str:
        while (state := self.ask("GET", "", folder).json()["state"]) not in states:
            time.sleep(0.02)
        return str(state)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    # In memory where that is: a killed process loses nothing of what it wrote, be the disk ever so slow to sync.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        one = Process(prepare(Path(folder) / "host"))
        yield one
        one.kill()


def test_an_upload_goes_on_where_it_was_safe_and_nothing_half_is_seen(server: Process) -> None:
    folder, content = uuid.uuid4(), random.Random(1).randbytes(24 * 2**20)
    assert server.ask("PUT", "", folder, json={}).status == 201
    headers = {**TUS, **metadata("f"), "Upload-Length": str(len(content))}
    upload = "/uploads/" + server.ask("POST", "/uploads", folder, "edit", headers=headers).headers["Location"][-32:]
    data = folder_path(server.root, folder) / "data"
    for point in range(POINTS):
        at = int(server.ask("HEAD", upload, folder, "edit", headers=TUS).headers["Upload-Offset"])
        end = len(content) * (point + 1) // (POINTS + 1)

        def part(at: int = at, end: int = end) -> Iterator[bytes]:
            middle = (at + end) // 2
            yield content[at:middle]
            server.kill()
            yield content[middle:end]

        with pytest.raises((urllib3.exceptions.HTTPError, OSError)):
            server.ask("PATCH", upload, folder, "edit", headers={**TUS, **KIND, "Upload-Offset": str(at)}, body=part())
        assert os.listdir(data) == []
        server.start()
    at = int(server.ask("HEAD", upload, folder, "edit", headers=TUS).headers["Upload-Offset"])
    last = {**TUS, **KIND, "Upload-Offset": str(at)}
    assert server.ask("PATCH", upload, folder, "edit", headers=last, body=content[at:]).status == 204
    assert hashlib.sha256((data / "f").read_bytes()).digest() == hashlib.sha256(content).digest()


def test_a_clone_is_completed_and_a_removal_ends(server: Process) -> None:
    source = uuid.uuid4()
    assert server.ask("PUT", "", source, json={}).status == 201
    data = folder_path(server.root, source) / "data"
    for number in range(600):
        (data / f"d{number % 7}").mkdir(exist_ok=True)
        (data / f"d{number % 7}" / str(number)).write_text(str(number))
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{data.stat().st_uid}", str(data)], check=True)
    former = uuid.uuid4()  # is not there: its removal ends at once
    for point in range(POINTS + 1):
        target = uuid.uuid4()
        assert server.ask("POST", "/clones", target, json={"source": str(source)}).status == 202
        assert server.ask("DELETE", "", former).status == 202
        time.sleep(0.02 * point)
        server.kill()
        seen = folder_path(server.root, target) / "data"
        assert not seen.exists() or sum(len(files) for _, _, files in os.walk(seen)) == 600
        assert not folder_path(server.root, former).exists()
        server.start()
        server.until(target, "ready")
        server.until(former, "absent")
        assert sum(len(files) for _, _, files in os.walk(seen)) == 600
        assert all((seen / f"d{n % 7}" / str(n)).read_text() == str(n) for n in range(600))
        former = target
    assert os.listdir(server.root / ".deleting") == os.listdir(server.root / ".staging") == []
