"""How an endpoint follows a load that grows sixfold at once, and then stays.

bin/bench wave [--json] [--ray PYTHON]

Requests come at a fixed rate, whether earlier ones are answered or not; a replica answers one at a time. ``back_s``:
seconds from the growth until the 95th percentile of five seconds is at most twice that of the small load, and stays
so. ``reversals``: how often the number of replicas changed its direction under the constant load. PYTHON has
``ray[serve]``: the same model runs on Ray Serve as well, with Ray's own settings but for the same target and maximum.
Both get their waves at the same time, so that other work on the machine delays both alike. ``load``: processes that ran
or waited for a processor, the mean of a minute, in the middle of the large load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import aiohttp
import uvloop

from bench._portal import free_port, running_portal, say, wait_until
from bench.endpoints import Served

_TAKES, _TARGET, _MOST = 0.1, 0.6, 8  # seconds of a request; requests under way for each replica; replicas
_SMALL, _TIMES = 5.0, 6.0  # requests per second
_SMALL_SECONDS, _LARGE_SECONDS, _WINDOW = 30.0, 150.0, 5.0
_START_SECONDS = 120.0
Figures = dict[str, float]


@dataclass
class Wave:
    """Requests by the second in which they began, and the numbers of replicas meanwhile."""

    url: str
    headers: dict[str, str]
    replicas: Callable[[], int]
    answers: list[tuple[float, float, bool]] = field(default_factory=list)  # began at, seconds, is answered
    numbers: list[tuple[float, int]] = field(default_factory=list)

    def run(self) -> Figures:
        """Send the waves; returns the figures."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,))
        watcher.start()
        try:
            uvloop.run(self._send())
        finally:
            over.set()
            watcher.join()
        return self._figures()

    async def _send(self) -> None:
        self._began = time.monotonic()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
            asyncio.TaskGroup() as all_,
        ):
            due, end = 0.0, _SMALL_SECONDS + _LARGE_SECONDS
            while due < end:
                await asyncio.sleep(max(0.0, self._began + due - time.monotonic()))
                all_.create_task(self._ask(client))
                due += 1 / (_SMALL if due < _SMALL_SECONDS else _SMALL * _TIMES)

    async def _ask(self, client: aiohttp.ClientSession) -> None:
        began = time.monotonic()
        is_answered = False
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with client.get(self.url, headers=self.headers, timeout=aiohttp.ClientTimeout(total=120)) as answer:
                is_answered = answer.status == 200
                await answer.read()
        self.answers.append((began - self._began, time.monotonic() - began, is_answered))

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.5):
            self.numbers.append((time.monotonic() - self._began, self.replicas()))

    def _figures(self) -> Figures:
        small = self._p95(_SMALL_SECONDS / 2, _SMALL_SECONDS)
        starts = [_SMALL_SECONDS + number * _WINDOW for number in range(int(_LARGE_SECONDS / _WINDOW))]
        late = [at for at in starts if self._p95(at, at + _WINDOW) > 2 * small]
        return {
            "small_p95_ms": round(1000 * small),
            "worst_p95_ms": round(1000 * max(self._p95(at, at + _WINDOW) for at in starts)),
            "back_s": round(late[-1] + _WINDOW - _SMALL_SECONDS, 1) if late else 0.0,
            "reversals": self._reversals(),
            "replicas_at_end": self.numbers[-1][1],
            "most_replicas": max(number for _, number in self.numbers),
            "refused": sum(not is_answered for *_, is_answered in self.answers),
        }

    def _p95(self, first: float, last: float) -> float:
        return statistics.quantiles([took for at, took, _ in self.answers if first <= at < last], n=20)[18]

    def _reversals(self) -> int:
        numbers = [number for at, number in self.numbers if at >= _SMALL_SECONDS]
        steps = [after > before for before, after in pairwise(numbers) if after != before]
        return sum(one != other for one, other in pairwise(steps))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench wave", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--ray", metavar="PYTHON", help="a Python that has ray[serve]")
    options = parser.parse_args()
    figures = run(options.ray)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:32} {value}")


def run(ray: str | None = None) -> Figures:
    """Return the figures of an endpoint on a platform of its own and, with ``ray``, of Ray Serve beside it."""
    with contextlib.ExitStack() as stack:
        waves = {"endpoint": stack.enter_context(_endpoint())}
        if ray:
            waves["ray"] = stack.enter_context(_ray_serve(ray))
        threads = stack.enter_context(ThreadPoolExecutor(len(waves)))
        runs = {who: threads.submit(wave.run) for who, wave in waves.items()}
        time.sleep(_SMALL_SECONDS + _LARGE_SECONDS / 2)
        figures = {"load": round(os.getloadavg()[0], 1)}
        for who, run_ in runs.items():
            figures |= {f"{who}_{name}": value for name, value in run_.result().items()}
        return figures


@contextlib.contextmanager
def _endpoint() -> Iterator[Wave]:
    say("starting a platform ...")
    native = {"BACKENDAI_AGENT_BACKEND": "process", "BACKENDAI_AGENT_NATIVE_SERVING": "yes"}
    native["BACKENDAI_AGENT_ENVIRONMENTS"] = "off"
    with running_portal("sqlite", native) as portal:
        more = {"target": _TARGET, "maximum": _MOST, "concurrency": 1, "queue": 10_000, "queue_seconds": 120}
        served = Served(portal.client(), "wave", 1, more, TAKES=str(_TAKES))
        try:
            wait_until(lambda: served.look()["ready"] == 1, _START_SECONDS, pause=0.2)
            headers = dict(header.split(": ", 1) for header in served.way.headers)
            url = f"http://{served.way.address}:{served.way.port}/"
            yield Wave(url, headers, lambda: int(served.look()["ready"]))
        finally:
            served.delete()  # native replicas outlive their platform


@contextlib.contextmanager
def _ray_serve(python: str) -> Iterator[Wave]:
    say("starting Ray Serve ...")
    port, said = free_port(), [0]
    command = [python, str(Path(__file__).with_name("_ray_model.py")), str(port), str(_TAKES), str(_MOST), str(_TARGET)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    assert process.stdout is not None

    def listen(lines: Iterator[str]) -> None:
        said.extend(int(line.split()[1]) for line in lines if line.startswith("replicas "))

    listener = threading.Thread(target=listen, args=(process.stdout,), daemon=True)
    listener.start()
    try:
        wait_until(lambda: said[-1] == 1, _START_SECONDS, pause=0.2)
        yield Wave(f"http://127.0.0.1:{port}/", {}, lambda: said[-1])
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    main()
