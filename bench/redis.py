"""What is left when Redis dies for half a minute: sessions launched meanwhile still start, only later.

bin/bench redis [--json] [--seconds N]
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from backendai.ops.run.valkey import find_server
from bench._command import command, show
from bench._engine import ensure_image
from bench._portal import Client, free_port, running_portal, say, wait_until

_LAUNCHES = 4
_LOOK_SECONDS = 0.05
_RUNNING_SECONDS = 120.0


def main() -> None:
    """Measure and print."""
    options = command("redis", __doc__, {"seconds": (30.0, "how long Redis is away")}).parse_args()
    show(options, run(options.seconds))


def run(seconds: float) -> dict[str, float]:
    """Return how fast launches are accepted and run before, while and after Redis is away."""
    ensure_image()
    with _server() as server, running_portal("sqlite", {"REDIS_URL": server.url}) as portal:
        client = portal.client()
        before = [_launch(client) for _ in range(_LAUNCHES)]
        say(f"Redis is killed for {seconds:.0f} s")
        server.kill()
        back_at = time.monotonic() + seconds
        during = [_launch(client) for _ in range(_LAUNCHES)]
        time.sleep(max(0.0, back_at - time.monotonic()))
        server.start()
        say("Redis is back")
        after = [_launch(client) for _ in range(_LAUNCHES)]
    return {
        "accept_ms_before": _milliseconds(before),
        "accept_ms_without": _milliseconds(during),
        "accept_ms_without_worst": round(max(accepted for accepted, _ in during) * 1000, 1),
        "running_s_before": _seconds(before),
        "running_s_without": _seconds(during),
        "running_s_first_after": round(after[0][1], 2),
        "running_s_after": _seconds(after[1:]),
    }


class _Server:
    """A Redis of the benchmark's own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it; returns when the port is open."""
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""]
        self._process = subprocess.Popen([find_server(), *options], stdout=subprocess.DEVNULL)
        time.sleep(0.5)

    def kill(self) -> None:
        """End it without a chance to say anything."""
        if self._process:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def _server() -> Iterator[_Server]:
    with tempfile.TemporaryDirectory(prefix="backendai-bench-redis-") as folder:
        server = _Server(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _launch(client: Client) -> tuple[float, float]:
    """Launch one session; returns the seconds until it was accepted and until it ran. Ends it."""
    started_at = time.perf_counter()
    session_id = client.launch()
    accepted = time.perf_counter() - started_at
    wait_until(lambda: client.status(session_id) == "RUNNING", _RUNNING_SECONDS, pause=_LOOK_SECONDS)
    ran = time.perf_counter() - started_at
    client.end(session_id)
    return accepted, ran


def _milliseconds(launches: list[tuple[float, float]]) -> float:
    return round(statistics.median(accepted for accepted, _ in launches) * 1000, 1)


def _seconds(launches: list[tuple[float, float]]) -> float:
    return round(statistics.median(ran for _, ran in launches), 2)


if __name__ == "__main__":
    main()
