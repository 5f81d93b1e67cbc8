"""The ways in which somebody outside can send things to a platform, and an app and a guest that mean harm."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit

import requests
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.patience import patient
from tests.system.platform import Platform
from tests.system.test_ssh import Here

MIB = 2**20
# An app that answers, by the path, as no app should, until its reader leaves.
APP = r"""
import socket, threading, time
OK, MANY, LINE = b"HTTP/1.1 200 OK\r\n", b"a" * 65536, b"X: " + b"a" * 9000 + b"\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BEGIN = {"head": (OK, LINE), "header": (OK + b"X: ", MANY), "headers": (OK, b"X: a\r\n" * 5000), "garbage": (MANY,) * 2,
  "chunk": (CHUNKED + b"f" * 14 + b"\r\n", MANY), "trailers": (CHUNKED + b"0\r\n", LINE), "body": (OK + b"\r\n", MANY),
  "ws": (b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x82\x7f" + b"\x40" + bytes(7), MANY)}
def serve(one):
    try:
        begin, more = BEGIN[one.recv(65536).split(b" ")[1].decode().strip("/")]
        one.sendall(begin)
        while True: one.sendall(more)
    except (OSError, LookupError): time.sleep(3)
    one.close()
with socket.create_server(("", 9000)) as server:
    while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
BEGINNING = r"""import os, subprocess
os.truncate(os.open("sparse", 65), 2**32)
for n in range(5000): open(f"m{n}", "w").close()
subprocess.Popen(["python3", "app.py"], start_new_session=True)"""
# What the owner of a session can say to the agent instead of the guest.
GUEST = r"""import socket
for said in (b"x" * 2_000_000, b"[" * 200_000 + b"\n", b'{"hello": 1}\n' * 50_000, b'{"stream": "a"}\n', b""):
    held = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    for one in held:
        one.settimeout(0.2)
        try: one.connect("/run/backendai/agent.sock"); one.sendall(said)
        except OSError: pass
    for one in held: one.close()"""


class Doors(Here):
    """A platform with a session, a folder, a token and an agent's token, and all the ways to send something there."""

    def __init__(self, platform: Platform, local: Path) -> None:
        super().__init__(platform, local)
        wish = {"image": "work", "preopen_ports": [9000], "resources": {"cpu": "1", "mem": "512m"}}
        self.session = self.client.wait_until_running(self.client.launch("hostile", **wish)["id"])["id"]
        self.node = json.loads((platform.data / "agents/local/credentials.json").read_text())["token"]
        origins = [platform.url, self.client.folder(self.folder)["files_url"], self.client.agents()[0]["gateway_url"]]
        self.portal, self.apps, self.gateway = (int(urlsplit(url).port or 0) for url in origins)
        self.rest, self.files = f"/api/v1/sessions/{self.session}", f"/folders/{self.folder}"
        self.app, self.answers = f"/apps/{self.session}/port-9000", Counter[int]()
        self.head = f" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.client.token}\r\n"
        assert self.ask("PUT", f"{self.rest}/files/app.py", APP) == 201
        assert self.code(BEGINNING) == 200

    def ask(self, method: str, path: str, body: Any = None, port: int = 0, read: int = MIB, **headers: str) -> int:
        """Send a request, read so much of its answer, and leave. Returns the status; 0: the connection was cut."""
        told = {"Authorization": f"Bearer {self.client.token}", "Content-Type": "application/json"}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        address, status = f"http://127.0.0.1:{port or self.portal}{path}", 0
        with suppress(requests.RequestException), requests.Session() as web:
            web.trust_env = False
            with web.request(method, address, data=body, headers=told, stream=True, timeout=patient(10)) as answer:
                status = answer.status_code
                for _, _ in zip(range(read // 65536), answer.iter_content(65536), strict=False):
                    pass
        self.answers[status] += 1
        return status

    def ask_all(self, *asked: tuple[Any, ...], times: int = 1, **more: Any) -> None:
        """Send requests, four at a time."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda one: self.ask(*one, **more), asked * times))

    def code(self, code: str) -> int:
        """Run code in the session for three seconds."""
        return self.ask("POST", f"{self.rest}/runs/", json.dumps({"code": code, "wait": 10, "timeout": 3}))

    def hold(self, port: int, *said: bytes | str, times: int = 1) -> None:
        """Open connections, say this on each, and read nothing."""
        with ExitStack() as held:
            for _ in range(times):
                with suppress(OSError):
                    one = held.enter_context(create_connection(("127.0.0.1", port), timeout=5))
                    for part in said:
                        one.sendall(part if isinstance(part, bytes) else part.encode())
            time.sleep(1)

    def websockets(self, path: str, *said: bytes | str, times: int = 1) -> None:
        """Open websockets of the portal, send these messages on each, and read nothing."""
        address, told = f"ws://127.0.0.1:{self.portal}/ws/{path}", {"Authorization": f"Bearer {self.client.token}"}
        with ExitStack() as held:
            for _ in range(times):
                with suppress(WebSocketException, OSError):
                    one = connect(address, additional_headers=told, compression=None, proxy=None, close_timeout=0.1)
                    held.enter_context(one)
                    for message in said:
                        one.send(message)
            time.sleep(1)

    def memory(self) -> dict[str, int]:
        """Return the bytes of each lasting process by role: its own pages, and its part of the shared ones."""
        pids = self.platform.pids() | {"supervisor": self.platform.pid}
        told = {f"{role} {pid}": Path(f"/proc/{pid}/smaps_rollup").read_text() for role, pid in pids.items()}
        return {name: int(text.partition("\nPss:")[2].split()[0]) * 1024 for name, text in told.items()}
