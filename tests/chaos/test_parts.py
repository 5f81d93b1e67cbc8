"""The parts of the chaos rig by themselves: a rig that strikes nothing proves nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.clock import MovableClock
from tests.chaos.relay import Relay
from tests.chaos.schedule import Kind, plan

KINDS = [Kind("kill"), Kind("freeze", 1.0, 12.0), Kind("lose", 66.0, 80.0, one_in=3), *map(Kind, "abcdefghij")]


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets, one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield server.getsockname()


def serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, suppress(ConnectionError):
            while data := connection.recv(1024):
                connection.sendall(data)


def test_a_plan_follows_from_its_seed() -> None:
    assert plan(1, 600, KINDS) == plan(1, 600, KINDS)
    assert plan(1, 600, KINDS) != plan(2, 600, KINDS)


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_a_hundred_faults_of_every_kind_and_none_twice_at_once(seed: int) -> None:
    strikes = plan(seed, 600, KINDS)
    assert len(strikes) >= 100
    assert {strike.kind for strike in strikes} == {kind.name for kind in KINDS}
    assert all(strike.at + strike.seconds <= 600 for strike in strikes)
    over: dict[str, float] = {}
    for strike in strikes:
        assert strike.at > over.get(strike.kind, 0.0)
        over[strike.kind] = strike.at + strike.seconds


def test_a_relay_passes_on_and_stalls(echo: tuple[str, int]) -> None:
    with Relay(echo) as relay, socket.create_connection(("127.0.0.1", relay.port), timeout=10) as client:
        client.sendall(b"one")
        assert client.recv(16) == b"one"
        relay.stall()
        client.sendall(b"two")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(16)
        relay.mend()
        client.settimeout(10)
        assert client.recv(16) == b"two"


def test_a_cut_relay_resets_what_is_open_and_what_comes(echo: tuple[str, int]) -> None:
    with Relay(echo) as relay:
        with socket.create_connection(("127.0.0.1", relay.port), timeout=10) as client:
            client.sendall(b"one")
            assert client.recv(16) == b"one"
            relay.cut()
            assert is_broken(client)
        assert is_refused(relay.port)
        relay.mend()
        with socket.create_connection(("127.0.0.1", relay.port), timeout=10) as client:
            client.sendall(b"two")
            assert client.recv(16) == b"two"


def is_refused(port: int) -> bool:
    """Return whether a new connection is reset; the reset may come before the connection is known to stand."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            return is_broken(client)
    except ConnectionError:
        return True


def is_broken(client: socket.socket) -> bool:
    try:
        return client.recv(16) == b""
    except ConnectionError:
        return True


def test_the_clock_of_a_process_is_stepped_while_it_runs_and_the_steady_one_is_not(tmp_path: Path) -> None:
    clock = MovableClock(tmp_path)
    if not clock.can_step:
        pytest.skip("a C compiler is missing: apt-get install gcc")
    program = (
        "import datetime as d, time\n"
        "while input():\n"
        "    print(time.time(), d.datetime.now(d.UTC).timestamp(), time.monotonic(), flush=True)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, env=os.environ | clock.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        for step in (0, 3600, -86400, 0):
            clock.set_ahead(step)
            process.stdin.write("now\n")
            process.stdin.flush()
            wall, date, steady = map(float, process.stdout.readline().split())
            assert wall - time.time() == pytest.approx(step, abs=60)
            assert date == pytest.approx(wall, abs=60)
            assert steady == pytest.approx(time.monotonic(), abs=60)
        process.kill()
