"""The app proxy beside the app itself and configurable-http-proxy: requests per second, added time, 1 MB bodies.

bin/bench app_proxy [--json] [--rounds N] [--seconds N] [--chp PROGRAM]

The app is a server of a native session; the way through the app proxy includes the agent's gateway, that through
configurable-http-proxy leads straight to the app. The ways take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import requests
import uvloop

from bench._command import command, show
from bench._events import Events
from bench._portal import NATIVE, Portal, end_all, free_port, running_portal, say, wait_until
from bench.endpoints import Way
from bench.execution import Session

_APP = (Path(__file__).parent / "_app_probe.py").read_bytes()
_CONNECTIONS, _READERS = 32, 8
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STARTED_SECONDS = 30.0
_BODY = 2**20


@dataclass
class Load(asyncio.Protocol):
    """One connection that asks again as soon as it has the whole answer."""

    request: bytes
    until: float
    taken: list[float] = field(default_factory=list)
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _head: bytes = b""
    _left: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport: Any = transport  # that of uvloop is no asyncio.Transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Count what has come of the answer; raises ValueError when it is not 200."""
        if not self._left:
            self._head += data
            head, found, data = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            length = _LENGTH.search(head)
            if b" 200 " not in head[:16] or not length:
                self.ended.set_exception(ValueError(head[:200]))
                self._transport.close()
                return
            self._head, self._left = b"", int(length[1])
        self._left -= len(data)
        if not self._left:
            self.taken.append(time.perf_counter() - self._asked_at)
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it is over."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionResetError("the connection was closed"))

    def _ask(self) -> None:
        self._asked_at = time.perf_counter()
        if self._asked_at < self.until:
            self._transport.write(self.request)
        else:
            self.ended.set_result(None)
            self._transport.close()


def main() -> None:
    """Measure and print."""
    numbers = {"rounds": (3, "turns of each way"), "seconds": (3.0, "length of a turn")}
    parser = command("app_proxy", __doc__, numbers)
    parser.add_argument("--chp", default="configurable-http-proxy", metavar="PROGRAM", help="to compare with")
    options = parser.parse_args()
    show(options, run(options.rounds, options.seconds, options.chp))


def run(rounds: int, seconds: float, chp: str) -> dict[str, float]:
    """Return the figures, measured on a platform of its own."""
    say("starting a platform ...")
    port = free_port()
    with running_portal("sqlite", NATIVE) as portal, _other_proxy(chp, port) as other:
        events, client = Events(portal.port, portal.token), portal.client()
        session_id = client.launch(image="python", resources={"cpu": "2", "mem": "1g"}, preopen_ports=[port])
        try:
            events.time_of(session_id, "RUNNING")
            here = Session(portal, session_id)
            here.send_file("app.py", _APP)
            here.batch(f"nohup python3 app.py {port} {_BODY} >app.log 2>&1 &")
            ways = {"direct": Way(port), "app_proxy": _enter(portal, here, port)}
            if other:
                ways["chp"] = Way(other)
            return _measure(ways, rounds, seconds)
        finally:
            end_all(client, events, [session_id])


def _measure(ways: dict[str, Way], rounds: int, seconds: float) -> dict[str, float]:
    wait_until(lambda: all(_answers(way) for way in ways.values()), _STARTED_SECONDS, pause=0.2)
    rates: dict[str, list[float]] = {}
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(list(ways)):
            for kind, path, connections in (("short", "/", _CONNECTIONS), ("large", "/large", _READERS)):
                taken = uvloop.run(_load(ways[name], path, connections, seconds))
                rates.setdefault(f"{name}_{kind}_per_s", []).append(len(taken) / seconds)
                rates.setdefault(f"{name}_{kind}_ms_p50", []).append(statistics.median(taken) * 1000)
            say(f"  {name}: {rates[f'{name}_short_per_s'][-1]:.0f}/s, {rates[f'{name}_large_per_s'][-1]:.0f} MiB/s")
    figures = {name: round(statistics.median(values), 2) for name, values in sorted(rates.items())}
    if "chp" in ways:
        for kind in ("short", "large"):
            share = figures[f"app_proxy_{kind}_per_s"] / figures[f"chp_{kind}_per_s"]
            figures[f"app_proxy_times_chp_{kind}"] = round(share, 2)
    return figures


async def _load(way: Way, path: str, connections: int, seconds: float) -> list[float]:
    """Return how long each request took."""
    loop, until, loads = asyncio.get_running_loop(), time.perf_counter() + seconds, list[Load]()
    for _ in range(connections):
        load = Load(way.request(path), until)
        loads.append(load)
        await loop.create_connection(lambda load=load: load, "127.0.0.1", way.port)
    await asyncio.gather(*(load.ended for load in loads))
    return [one for load in loads for one in load.taken]


def _answers(way: Way) -> bool:
    headers = dict(header.split(": ", 1) for header in way.headers)
    with contextlib.suppress(requests.RequestException), requests.Session() as session:
        session.trust_env = False
        return session.get(f"http://127.0.0.1:{way.port}/", headers=headers, timeout=5).text == "ok"
    return False


def _enter(portal: Portal, here: Session, port: int) -> Way:
    """Return the way of a visitor who has been let in."""
    service = f"port-{port}"
    app = next(one for one in here.ask("GET", "apps/")["results"] if one["name"] == service)
    code = here.ask("POST", f"apps/{service}/", {})["code"]
    host, proxy = urlsplit(app["url"]).netloc, urlsplit(app["url"]).port or 80
    headers = {"Host": host, "Content-Type": "application/x-www-form-urlencoded"}
    with requests.Session() as session:
        session.trust_env = False
        address = f"http://127.0.0.1:{proxy}/.backendai/enter"
        body = urlencode({"code": code})
        answer = session.post(address, data=body, headers=headers, allow_redirects=False, timeout=20)
        answer.raise_for_status()
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return Way(proxy, headers=(f"Host: {host}", f"Cookie: {cookie}"))


@contextlib.contextmanager
def _other_proxy(program: str, target: int) -> Iterator[int]:
    """configurable-http-proxy before the app; gives its port, or 0 where it is not installed."""
    found = shutil.which(program)
    if found is None:
        say("configurable-http-proxy is not installed: nothing to compare with (npm install configurable-http-proxy)")
        yield 0
        return
    port, told = free_port(), ["--ip", "127.0.0.1", "--api-ip", "127.0.0.1", "--log-level", "error"]
    ports = ["--port", str(port), "--api-port", str(free_port())]
    process = subprocess.Popen([found, *told, *ports, "--default-target", f"http://127.0.0.1:{target}"])
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
