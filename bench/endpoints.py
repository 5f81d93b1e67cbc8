"""Requests through the app proxy to the replicas of an endpoint, beside nginx and haproxy before the same replicas.

bin/bench endpoints [--json] [--rounds N] [--seconds N]

The way through the app proxy includes the agent's gateway; nginx and haproxy go straight to the replicas. Four replicas
answer at once, then one request at a time after 5 ms, one of them after 50. Streams: 200 at once, 20 events a second
each; the delay is that from the replica to the reader, and the direct way has one as well. Wake: 100 requests to an
endpoint that sleeps, beside the start of a session and the second that the server takes to load. The ways take turns;
wrk, nginx and haproxy come from apt.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import uvloop

from bench._command import command, show
from bench._events import Events
from bench._portal import NATIVE, Client, Portal, end_all, free_port, running_portal, say, wait_until

_SOURCE = (Path(__file__).parent / "_model_probe.py").read_text().replace("'", "'\\''")
_REPLICAS, _CONNECTIONS, _STREAMS, _HELD = 4, 32, 200, 100
_TAKES, _SLOW, _LOAD = 0.005, 0.05, 1.0  # seconds
_READY_SECONDS = 120.0
_RATE, _P99 = re.compile(r"Requests/sec: +([\d.]+)"), re.compile(r"99% +([\d.]+)(us|ms|s)")
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_EVENT = re.compile(rb"data: (\d+)\n")
_MIB = 2**20
_NGINX = """
user root; daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; proxy_buffering off; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 600s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; keepalive_requests 1000000;
  upstream least {{ least_conn; {servers} keepalive 64; }}
  upstream turns {{ {servers} keepalive 64; }}
  server {{ listen 127.0.0.1:{least}; location / {{ proxy_pass http://least; }} }}
  server {{ listen 127.0.0.1:{turns}; location / {{ proxy_pass http://turns; }} }}
}}
"""
_HAPROXY = """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
listen least
  bind 127.0.0.1:{least}
  balance leastconn
{servers}
"""
Figures = dict[str, float]


@dataclass(frozen=True)
class Way:
    """An address of the replicas, and the headers that it needs."""

    port: int
    address: str = "127.0.0.1"
    headers: tuple[str, ...] = ()

    def request(self, path: str) -> bytes:
        """Return the bytes of a GET."""
        host = () if self.headers else (f"Host: {self.address}",)
        return "\r\n".join([f"GET {path} HTTP/1.1", *self.headers, *host, "", ""]).encode()


@dataclass
class Reader(asyncio.Protocol):
    """One reader of a stream; ``delays`` in milliseconds."""

    request: bytes
    delays: list[float] = field(default_factory=list)
    _rest: bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        self.transport: Any = transport  # that of uvloop is no asyncio.Transport
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Note how old each event is."""
        now, said = time.monotonic_ns(), self._rest + data
        self.delays += [(now - int(at)) / 1e6 for at in _EVENT.findall(said)]
        self._rest = said[said.rfind(b"\n") + 1 :]


class Served:
    """An endpoint of native replicas."""

    def __init__(self, client: Client, name: str, replicas: int, **environ: str) -> None:
        self._client, self._port = client, free_port()
        body = {"name": name, "image": "python", "command": f"exec python3 -c '{_SOURCE}'", "port": self._port}
        body |= {"resources": {"cpu": "1", "mem": "128m"}, "environ": environ, "target": 1000}
        body |= {"minimum": replicas, "maximum": max(replicas, 1)}
        self._path = f"/api/v1/endpoints/{self._post('/api/v1/endpoints/', body)}/"
        token = client.ask("POST", f"{self._path}tokens/", {"name": "bench"})[1]["token"]
        host = self.look()["url"].partition("://")[2].rstrip("/")
        self.way = Way(int(host.rpartition(":")[2]), headers=(f"Host: {host}", f"Authorization: Bearer {token}"))

    def look(self) -> dict[str, Any]:
        """Return the endpoint as it is now."""
        return dict(self._client.ask("GET", self._path)[1])

    def addresses(self) -> list[str]:
        """Return where its replicas listen on this machine."""
        found = set()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                said = process.environ()
                if said.get("PORT") == str(self._port) and "BACKENDAI_KERNEL_ID" in said:
                    found.add(said["HOST"])
        return [f"{one}:{self._port}" for one in sorted(found)]

    def delete(self) -> None:
        """Delete it and wait until its replicas have ended."""
        self._client.ask("DELETE", self._path)
        wait_until(lambda: not self.addresses(), _READY_SECONDS, pause=0.2)

    def _post(self, path: str, body: dict[str, Any]) -> str:
        status, answer = self._client.ask("POST", path, body)
        if status != 201:
            raise RuntimeError(f"the endpoint was answered with {status}: {answer}")
        return str(answer["id"])


def main() -> None:
    """Measure and print."""
    numbers = {"rounds": (3, "turns of each way"), "seconds": (5.0, "length of a turn")}
    options = command("endpoints", __doc__, numbers).parse_args()
    show(options, run(options.rounds, options.seconds))


def run(rounds: int, seconds: float) -> Figures:
    """Return the figures, measured on a platform of its own."""
    say("starting a platform ...")
    with (
        running_portal("sqlite", {**NATIVE, "BACKENDAI_AGENT_NATIVE_SERVING": "yes"}) as portal,
        tempfile.TemporaryDirectory() as folder,
    ):
        client = portal.client()
        served = Served(client, "chat", _REPLICAS)
        wait_until(lambda: served.look()["ready"] == _REPLICAS, _READY_SECONDS, pause=0.2)
        addresses = served.addresses()
        with _balancers(addresses, Path(folder)) as ports:
            time.sleep(2)  # they have begun to listen, and the app proxy has probed every replica
            others = {name: Way(port) for name, port in ports.items()}
            figures = _requests({"app_proxy": served.way, **others}, rounds, seconds)
            figures |= _one_slow({"app_proxy": served.way, **others}, addresses, rounds, seconds)
            nginx = {name: way for name, way in others.items() if name == "nginx"}
            figures |= _streams(portal, {"direct": _way_to(addresses[0]), **nginx, "app_proxy": served.way}, seconds)
        served.delete()
        return figures | _wake(portal, client, rounds)


def _requests(ways: dict[str, Way], rounds: int, seconds: float) -> Figures:
    ways = {name: way for name, way in ways.items() if name != "nginx_turns"}
    rates = _in_turns(ways, rounds, lambda way: _wrk(way, seconds)[0])
    figures = {f"{name}_per_s": round(statistics.median(found), 1) for name, found in rates.items()}
    return figures | _shares(figures, "_per_s", "times_nginx", "nginx")


def _one_slow(ways: dict[str, Way], addresses: list[str], rounds: int, seconds: float) -> Figures:
    """Return the 99th percentiles where one of the replicas is ten times slower."""
    for number, address in enumerate(addresses):
        uvloop.run(_ask(_way_to(address), f"/takes/{_TAKES if number else _SLOW}"))
    slowest = _in_turns(ways, rounds, lambda way: _wrk(way, seconds)[1])
    for address in addresses:
        uvloop.run(_ask(_way_to(address), "/takes/0"))
    figures = {f"{name}_one_slow_ms_p99": round(statistics.median(found), 1) for name, found in slowest.items()}
    for other in ("haproxy", "nginx_turns"):
        figures |= _shares(figures, "_one_slow_ms_p99", f"one_slow_p99_times_{other}", other)
    return figures


def _streams(portal: Portal, ways: dict[str, Way], seconds: float) -> Figures:
    """Return the delays of events, and by how much the app proxy and the agent have grown meanwhile."""
    figures: Figures = {}
    for name, way in ways.items():
        watched = [portal.processes()[role] for role in ("appproxy", "agent")] if name == "app_proxy" else []
        delays, grown = uvloop.run(_read_streams(way, 4 * seconds, watched))
        figures[f"{name}_stream_ms_p50"] = round(statistics.median(delays), 2)
        figures[f"{name}_stream_ms_p99"] = round(statistics.quantiles(delays, n=100)[98], 2)
        figures[f"{name}_stream_events_per_s"] = round(len(delays) / (3 * seconds), 1)
        if watched:
            figures["streams_grew_mib"] = round(grown / _MIB, 1)
        say(f"  {name}: {figures[f'{name}_stream_ms_p99']} ms")
    added = figures["app_proxy_stream_ms_p99"] - figures["direct_stream_ms_p99"]
    return figures | {"streams_added_ms_p99": round(added, 2)}


async def _read_streams(way: Way, seconds: float, watched: list[psutil.Process]) -> tuple[list[float], int]:
    """Return the delays of the last three quarters, and the bytes by which the processes grew in these."""
    loop, readers = asyncio.get_running_loop(), list[Reader]()
    for _ in range(_STREAMS):
        readers.append(Reader(way.request("/stream")))
        await loop.create_connection(lambda one=readers[-1]: one, way.address, way.port)
        await asyncio.sleep(1 / 20 / _STREAMS)  # else all events come at the same moments
    await asyncio.sleep(seconds / 4)
    before = sum(one.memory_info().rss for one in watched)
    for reader in readers:
        reader.delays.clear()
    await asyncio.sleep(3 * seconds / 4)
    grown = sum(one.memory_info().rss for one in watched) - before
    for reader in readers:
        reader.transport.close()
    return [delay for reader in readers for delay in reader.delays], grown


def _wake(portal: Portal, client: Client, rounds: int) -> Figures:
    """Return how long the held requests took, beside a bare start, and how many were refused."""
    events, bare, woken, refused = Events(portal.port, portal.token), list[float](), list[float](), 0
    for number in range(rounds):
        started_at = time.perf_counter()
        session_id = client.launch(image="python", resources={"cpu": "1", "mem": "128m"})
        bare.append(events.time_of(session_id, "RUNNING") - started_at + _LOAD)
        end_all(client, events, [session_id])
        served = Served(client, f"asleep-{number}", 0, LOAD=str(_LOAD))
        time.sleep(2)  # the app proxy reads its book every second
        started_at = time.perf_counter()
        statuses = uvloop.run(_ask_many(served.way))
        woken.append(time.perf_counter() - started_at)
        refused += sum(status != 200 for status in statuses)
        served.delete()
        say(f"  woken after {woken[-1]:.2f} s, bare {bare[-1]:.2f} s, refused {refused}")
    figures = {"wake_s": round(statistics.median(woken), 2), "wake_bare_s": round(statistics.median(bare), 2)}
    return figures | {"wake_added_s": round(figures["wake_s"] - figures["wake_bare_s"], 2), "wake_refused": refused}


async def _ask_many(way: Way) -> list[int]:
    return await asyncio.gather(*(_ask(way, "/") for _ in range(_HELD)))


async def _ask(way: Way, path: str) -> int:
    """Return the status of one answer."""
    reader, writer = await asyncio.open_connection(way.address, way.port)
    writer.write(way.request(path))
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ", 2)[1])


def _in_turns(ways: dict[str, Way], rounds: int, measure: Callable[[Way], float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(list(ways)):
            found[name].append(measure(ways[name]))
            say(f"  {name}: {found[name][-1]:.1f}")
    return found


def _wrk(way: Way, seconds: float) -> tuple[float, float]:
    """Return requests per second, and the milliseconds of the 99th percentile."""
    headers = [word for header in way.headers for word in ("-H", header)]
    length = f"{seconds:.0f}s"
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{length}", "--timeout", "20s", "--latency", *headers]
    said = subprocess.run(
        [*command, f"http://{way.address}:{way.port}/"], check=True, capture_output=True, text=True
    ).stdout
    rate, slowest = _RATE.search(said), _P99.search(said)
    if rate is None or slowest is None or "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(said)
    return float(rate[1]), float(slowest[1]) * _MILLISECONDS[slowest[2]]


@contextmanager
def _balancers(addresses: Sequence[str], folder: Path) -> Iterator[dict[str, int]]:
    """Give the ports of those that are installed: ``nginx`` (least_conn), ``nginx_turns`` and ``haproxy``."""
    ports = {name: free_port() for name in ("nginx", "nginx_turns", "haproxy")}
    servers = " ".join(f"server {one};" for one in addresses)
    nginx, haproxy = folder / "nginx.conf", folder / "haproxy.cfg"
    nginx.write_text(_NGINX.format(folder=folder, servers=servers, least=ports["nginx"], turns=ports["nginx_turns"]))
    lines = "\n".join(f"  server m{number} {one}" for number, one in enumerate(addresses))
    haproxy.write_text(_HAPROXY.format(least=ports["haproxy"], servers=lines))
    commands = {"nginx": ["-c", str(nginx)], "haproxy": ["-db", "-f", str(haproxy)]}
    with ExitStack() as leaving:
        for program, arguments in commands.items():
            if (found := shutil.which(program, path="/usr/local/sbin:/usr/sbin:/usr/bin")) is None:
                say(f"{program} is not installed: nothing to compare with (apt install {program})")
                ports = {name: port for name, port in ports.items() if not name.startswith(program)}
                continue
            process = subprocess.Popen([found, *arguments])
            leaving.callback(process.wait)
            leaving.callback(process.terminate)
        yield ports


def _shares(figures: Figures, suffix: str, name: str, other: str) -> Figures:
    if f"{other}{suffix}" not in figures:
        return {}
    return {f"app_proxy_{name}": round(figures[f"app_proxy{suffix}"] / figures[f"{other}{suffix}"], 2)}


def _way_to(address: str) -> Way:
    host, _, port = address.rpartition(":")
    return Way(int(port), host)


if __name__ == "__main__":
    main()
