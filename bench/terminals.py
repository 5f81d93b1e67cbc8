"""Many terminals at once: the time from a key to its echo; and memory while a file of a GiB streams out of a session.

bin/bench terminals [--json] [--terminals N] [--seconds N]

Sessions are native ones. Each terminal sends a key each second, at a moment of its own, and waits for its echo.
"""

from __future__ import annotations

import asyncio
import http.client
import random
import statistics
import time
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection, connect

from bench._command import command, show
from bench._events import Events
from bench._portal import NATIVE, Client, Portal, end_all, running_portal, say

_OF_PERSON, _OF_SESSION = 48, 8  # what the portal lets open
_WARM_SECONDS = 3.0
_STREAMED = 2**30
_LOOK_SECONDS = 0.2


def main() -> None:
    """Measure and print."""
    numbers = {"terminals": (200, "how many are open"), "seconds": (30, "for how long keys are sent")}
    options = command("terminals", __doc__, numbers).parse_args()
    show(options, run(options.terminals, options.seconds))


def run(terminals: int, seconds: int) -> dict[str, float]:
    """Return the figures, measured on a platform of its own."""
    say("starting a platform ...")
    wishes = {"image": "python", "resources": {"cpu": "0.1", "mem": "64m"}}
    with running_portal("sqlite", {**NATIVE, "BACKENDAI_AGENT_SLOTS": "cpu=1000,mem=1t"}) as portal:
        events, opened, session_ids = Events(portal.port, portal.token), list[tuple[str, str, int]](), list[str]()
        try:
            tokens = [portal.token, *portal.people((terminals - 1) // _OF_PERSON)]
            for number, token in zip(range(0, terminals, _OF_PERSON), tokens, strict=True):
                for first in range(number, min(number + _OF_PERSON, terminals), _OF_SESSION):
                    session_ids.append(Client(portal.port, token).launch(**wishes))
                    events.time_of(session_ids[-1], "RUNNING")
                    shells = range(1, min(_OF_SESSION, terminals - first) + 1)
                    opened += [(token, session_ids[-1], shell) for shell in shells]
            echoes = asyncio.run(_echoes(portal, opened, seconds))
            return _shares(echoes) | _stream(portal, opened[0][1])
        finally:
            end_all(portal.client(), events, session_ids)


async def _open(portal: Portal, one: tuple[str, str, int]) -> ClientConnection:
    token, session_id, shell = one
    address = f"ws://127.0.0.1:{portal.port}/ws/sessions/{session_id}/terminal/?ack=0&shell={shell}"
    headers = {"Authorization": f"Bearer {token}"}
    return await connect(address, additional_headers=headers, compression=None, max_size=None, open_timeout=60)


async def _echoes(portal: Portal, opened: Sequence[tuple[str, str, int]], seconds: int) -> list[float]:
    """Return the seconds from each key to its echo."""
    sockets = [await _open(portal, one) for one in opened]
    say(f"  {len(sockets)} terminals are open")
    await asyncio.sleep(_WARM_SECONDS)
    until, echoes = time.monotonic() + seconds, list[float]()

    async def type_into(socket: ClientConnection) -> None:
        await socket.send(b"cat\r")
        await asyncio.sleep(_WARM_SECONDS + random.random())
        for number in range(seconds):
            if time.monotonic() > until:
                return
            await _drain(socket)
            letter = b"abcdefghij"[number % 10 : number % 10 + 1]
            started_at = time.perf_counter()
            await socket.send(letter)
            while letter not in await _bytes(socket):
                pass
            echoes.append(time.perf_counter() - started_at)
            await asyncio.sleep(max(0.0, 1.0 - echoes[-1]))

    await asyncio.gather(*(type_into(socket) for socket in sockets))
    await asyncio.gather(*(socket.close() for socket in sockets))
    return echoes


async def _drain(socket: ClientConnection) -> None:
    while True:
        try:
            await asyncio.wait_for(socket.recv(), 0.005)
        except TimeoutError:
            return


async def _bytes(socket: ClientConnection) -> bytes:
    data = await socket.recv()
    return data if isinstance(data, bytes) else b""


def _shares(echoes: Sequence[float]) -> dict[str, float]:
    cuts = [round(cut * 1000, 1) for cut in statistics.quantiles(echoes, n=100)]
    say(f"  {len(echoes)} keys: p50 {cuts[49]} ms, p99 {cuts[98]} ms")
    return {
        "keys": len(echoes),
        "echo_ms_p50": cuts[49],
        "echo_ms_p99": cuts[98],
        "echo_ms_max": round(max(echoes) * 1000, 1),
    }


def _stream(portal: Portal, session_id: str) -> dict[str, float]:
    """Return how much memory the processes on its way grow by while a file of a GiB is downloaded."""
    path = f"/api/v1/sessions/{session_id}/"
    made = {"code": f"truncate -s {_STREAMED} large", "mode": "batch", "wait": 20}
    assert portal.client().ask("POST", f"{path}runs/", made)[0] == 200
    processes = {name: process for name, process in portal.processes().items() if name in ("web", "agent")}
    before = {name: process.memory_info().rss for name, process in processes.items()}
    most, seen, looked_at, started_at = dict(before), 0, 0.0, time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", portal.port, timeout=60)
    connection.request("GET", f"{path}files/large", headers={"Authorization": f"Bearer {portal.token}"})
    answer = connection.getresponse()
    while piece := answer.read(2**20):
        seen += len(piece)
        if time.perf_counter() - looked_at > _LOOK_SECONDS:
            looked_at = time.perf_counter()
            most = {name: max(most[name], process.memory_info().rss) for name, process in processes.items()}
    connection.close()
    grown = {f"stream_{name}_more_mb": round((most[name] - before[name]) / 2**20, 1) for name in processes}
    return {"stream_mb": seen / 2**20, "stream_seconds": round(time.perf_counter() - started_at, 1), **grown}


if __name__ == "__main__":
    main()
