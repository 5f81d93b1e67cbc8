"""Two hundred clients that come and go, each in its own way: gate, gateway and guest are as they were before."""

from __future__ import annotations

import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backendai.domain.compute.models import ComputeSession
from backendai.gates.sshgate import server
from tests.patience import patient
from tests.sshgate.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]
_CLIENTS, _AT_ONCE, _LOGIN_SECONDS, _GONE_SECONDS = 200, 4, 2.0, 30.0
_LEAVING_SECONDS = 6.0  # the guest waits five for the last words of a client
_KEPT = 4  # a thread may ask the database for the first time, and keeps its connection
_IN_THE_GUEST = "ls /proc/$PPID/fd | wc -l; ls /proc/$PPID/task | wc -l; pgrep -c -P $PPID"  # it is the shell's parent


def _half_open(here: Stage, key: Path, number: int) -> None:
    """Say less and less: a whole version, half of one, nothing; then leave, or wait to be hung up on."""
    with socket.create_connection(("127.0.0.1", here.port), timeout=_GONE_SECONDS) as connection:
        connection.sendall((b"SSH-2.0-slow\r\n", b"SSH-2", b"")[number % 3])
        if number % 2:
            while connection.recv(65536):
                pass


def _killed(here: Stage, key: Path, number: int) -> None:
    """Vanish with a program, a port and a transfer open."""
    words = ("echo on; exec cat /dev/zero", "echo on; exec sleep 600", "echo on; cat")[number % 3]
    client = subprocess.Popen(here.ssh(key, "train", words), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None and client.stdout.readline() == b"on\n"
    client.kill()
    client.communicate(timeout=patient(10))


def _normal(here: Stage, key: Path, number: int) -> None:
    if number % 2:
        assert here.run(key, "train", "cat; exit 3", given=b"x" * 100_000).returncode == 3
    else:
        assert here.copy("scp", key, "train@127.0.0.1:small", f"{here.folder}/small-{number}").returncode == 0


def test_nothing_is_left_of_clients_that_have_left(
    here: Stage, key: Path, session: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOGIN_SECONDS", _LOGIN_SECONDS)
    assert here.run(key, "train", "echo small >small").returncode == 0
    ways = (_half_open, _killed, _normal, _normal)

    def come_and_go(number: int) -> None:
        ways[number % len(ways)](here, key, number // len(ways))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(come_and_go, range(_CLIENTS // 10)))  # what is opened once and kept
        time.sleep(_LEAVING_SECONDS)
        before = _held(here, key)
        list(pool.map(come_and_go, range(_CLIENTS)))
    until = time.monotonic() + _GONE_SECONDS
    while not _is_back(held := _held(here, key), before):
        assert time.monotonic() < until, (held, before)
        time.sleep(1)


def _is_back(held: list[int], before: list[int]) -> bool:
    return all(now <= then + _KEPT for now, then in zip(held, before, strict=True))


def _held(here: Stage, key: Path) -> list[int]:
    """Return how many descriptors, threads and children the guest has, and tasks and descriptors gate and gateway."""
    return [*map(int, here.run(key, "train", _IN_THE_GUEST).stdout.split()), *here.left()]
