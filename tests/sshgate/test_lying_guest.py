"""A kernel whose guest is its user's own program and lies to the agent and to the gate: it harms its own user alone."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from backendai.agent.guest.link.sockets import SOCKET, connect
from backendai.base.wire.guest_frames import EXIT, STDOUT, frame
from backendai.domain.compute.models import ComputeSession
from backendai.gates.sshgate import link
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.sshgate.stage import Stage
from tests.sshgate.test_after_login import resident

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]
_MOST_GROWN = 64 * 2**20
_KEPT = 8  # descriptors: the threads that ask the database keep their connections
_ENDLESS_SECONDS, _END_SECONDS, _GONE_SECONDS = 2.0, 30.0, 30.0
Lie = Callable[["Liar", socket.socket, str], None]
_GRANTED = b"{}\n"
_PAGE = frame(STDOUT, b"x" * 65536)


class Liar:
    """Stands for the guest of a kernel; ``lie`` is told the control connection and the connection that is wanted."""

    def __init__(self, folder: Path, lie: Lie) -> None:
        self._folder, self._lie, self._open, self._has_left = folder, lie, list[socket.socket](), False

    def dial(self, said: bytes) -> socket.socket:
        """Return a connection to the agent that begins with these bytes."""
        connection = connect(self._folder / SOCKET)
        self._open.append(connection)
        if self._has_left:
            connection.close()
        connection.sendall(said)
        return connection

    def stream(self, name: str) -> socket.socket:
        """Return the connection that is wanted, after its question."""
        connection = self.dial(json.dumps({"stream": name}).encode() + b"\n")
        question = b""
        while not question.endswith(b"\n"):
            piece = connection.recv(1)
            if not piece:
                raise OSError("nobody asks")
            question += piece
        return connection

    def serve(self) -> None:
        """Dial the agent and lie until it hangs up."""
        with contextlib.suppress(OSError, ValueError):
            control = self.dial(b'{"hello": 1}\n')
            for line in control.makefile("rb"):
                wanted = json.loads(line)["open"]
                threading.Thread(target=self._tell, args=(control, wanted), daemon=True).start()

    def _tell(self, control: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            self._lie(self, control, name)

    def leave(self) -> None:
        """Hang up; threads that wait for a connection end."""
        self._has_left = True
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def says(*pieces: bytes) -> Lie:
    def lie(liar: Liar, _: socket.socket, name: str) -> None:
        stream = liar.stream(name)
        for piece in pieces:
            stream.sendall(piece)
        stream.close()

    return lie


def says_for_ever(beginning: bytes, piece: bytes) -> Lie:
    def lie(liar: Liar, _: socket.socket, name: str) -> None:
        stream = liar.stream(name)
        stream.sendall(beginning)
        while True:
            stream.sendall(piece)

    return lie


def says_nothing(liar: Liar, _: socket.socket, name: str) -> None:
    liar.stream(name)


def never_dials(*_: Any) -> None: ...


def answers_for_others(liar: Liar, _: socket.socket, name: str) -> None:
    for other in ("0" * 16, name[::-1], name * 100, "", name + "\0"):
        liar.dial(json.dumps({"stream": other}).encode() + b"\n").sendall(_GRANTED + _PAGE)


def answers_twice(liar: Liar, _: socket.socket, name: str) -> None:
    streams = [liar.dial(json.dumps({"stream": name}).encode() + b"\n") for _ in range(20)]
    for stream in streams:
        with contextlib.suppress(OSError):
            stream.sendall(_GRANTED + frame(STDOUT, b"twice") + frame(EXIT, b'{"code": 0}'))


def never_reads(liar: Liar, _: socket.socket, name: str) -> None:
    liar.dial(json.dumps({"stream": name}).encode() + b"\n").sendall(_GRANTED)


def talks_on_the_control(liar: Liar, control: socket.socket, _: str) -> None:
    while True:
        control.sendall(b'{"works": true}\n' * 1000)


def garbles_the_control(liar: Liar, control: socket.socket, _: str) -> None:
    control.sendall(b"\xff" * 200_000)


def dials_again_and_again(liar: Liar, _: socket.socket, name: str) -> None:
    for _number in range(300):
        liar.dial(b'{"hello": 1}\n')
    liar.stream(name).sendall(_GRANTED + frame(EXIT, b'{"code": 0}'))


def hangs_up(liar: Liar, control: socket.socket, _: str) -> None:
    control.shutdown(socket.SHUT_RDWR)


LIES: dict[str, Lie] = {
    "garbage for an answer": says(b"\xff\xfe" * 5000 + b"\n"),
    "an answer without an end": says_for_ever(b"", b"x" * 65536),
    "nested too deeply": says(b"[" * 60_000 + b"\n"),
    "an answer in pieces": says(b"{", b"}", b"\n", b"\x01\0"),
    "a frame of 4 GiB": says_for_ever(_GRANTED + b"\x01\xff\xff\xff\xff", b"x" * 65536),
    "a frame that breaks off": says(_GRANTED + frame(STDOUT, b"x" * 1000)[:500]),
    "a length without a frame": says(_GRANTED + b"\x01\0\0"),
    "an unknown kind": says(_GRANTED + frame(250, b"x" * 1000) * 100),
    "an exit that is none": says(_GRANTED + frame(EXIT, b"[" * 100_000)),
    "more after the exit": says_for_ever(_GRANTED + frame(EXIT, b'{"code": 0}'), _PAGE),
    "endless frames": says_for_ever(_GRANTED, _PAGE),
    "endless frames of nothing": says_for_ever(_GRANTED, frame(STDOUT, b"") * 10_000),
    "terminals of the client": says(_GRANTED + frame(STDOUT, b"\x1b]0;x\x07" * 1000) + frame(EXIT, b'{"code": -1}')),
    "silence": says_nothing,
    "no connection at all": never_dials,
    "answers for others": answers_for_others,
    "twenty answers": answers_twice,
    "input that is never read": never_reads,
    "talk on the control connection": talks_on_the_control,
    "garbage on the control connection": garbles_the_control,
    "hundreds of control connections": dials_again_and_again,
    "a control connection that ends": hangs_up,
}
ENDLESS = ("endless frames", "endless frames of nothing", "input that is never read")  # as programs can be


@pytest.fixture
def launch(cast: Cast, here: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Lie], Liar]]:
    """Bob's session ``lair``: what is given is the next guest that its agent starts."""
    lair = make_running_session(cast.bob, name="lair")
    here.run_kernels(lair)
    kernel_id = lair.kernels.get().pk
    guests, liars = here.backend.guests, list[Liar]()
    usual = guests.launch

    def start(one: UUID) -> None:
        if one == kernel_id:
            threading.Thread(target=liars[-1].serve, daemon=True).start()
        else:
            usual(one)

    def prepare(lie: Lie) -> Liar:
        liars.append(Liar(guests.folder(kernel_id), lie))
        return liars[-1]

    monkeypatch.setattr(guests, "launch", start)
    yield prepare
    here.backend.remove(kernel_id)


def test_a_guest_that_lies_harms_its_own_user_alone(
    cast: Cast, here: Stage, key: Path, session: ComputeSession, launch: Callable[[Lie], Liar],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(link, "_ANSWER_SECONDS", 3.0)
    bob = here.new_key("bob", cast.bob)
    bystander = subprocess.Popen(
        here.ssh(key, "train", "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert bystander.stdin is not None and bystander.stdout is not None
    with bystander, bystander.stdin, bystander.stdout:
        bystander.stdin.write(b"before\n")
        assert bystander.stdout.readline() == b"before\n"
        size, left = 0, (0, 0)
        for name, lie in LIES.items():
            _listen_to(here, bob, name, launch(lie))
            bystander.stdin.write(f"after {name}\n".encode())
            assert bystander.stdout.readline() == f"after {name}\n".encode()
            assert here.run(key, "train", "echo on").stdout == b"on\n", name
            left = left if size else _at_rest(here, (2**31, 2**31), name)
            size = size or resident()
            assert resident() - size < _MOST_GROWN, name
            _at_rest(here, (left[0], left[1] + _KEPT), name)
        bystander.stdin.close()
        assert bystander.wait(patient(10)) == 0


def _listen_to(here: Stage, key: Path, name: str, liar: Liar) -> None:
    """Connect as the liar's own user, once reading what is said, which comes to an end, and once not."""
    reading = subprocess.Popen(here.ssh(key, "lair", "id"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with Path("/dev/zero").open("rb") as zeros:
        stopped = subprocess.Popen(here.ssh(key, "lair", "id"), stdin=zeros, stdout=subprocess.PIPE)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            reading.wait(_ENDLESS_SECONDS)
        stopped.send_signal(signal.SIGSTOP)
        if name not in ENDLESS:
            reading.wait(_END_SECONDS)
    finally:
        for client in (reading, stopped):
            client.kill()
            client.communicate(timeout=patient(10))
        liar.leave()


def _at_rest(here: Stage, most: tuple[int, int], name: str) -> tuple[int, int]:
    """Return how many tasks and descriptors there are, once they are no more than these."""
    until = time.monotonic() + _GONE_SECONDS
    while True:
        left = here.left()
        if left[0] <= most[0] and left[1] <= most[1]:
            return left
        assert time.monotonic() < until, (name, left, most)
        time.sleep(0.1)
