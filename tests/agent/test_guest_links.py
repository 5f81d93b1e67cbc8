"""The start of a guest, where machines are quick, slow and busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.guest_host import GuestPlace
from backendai.agent.gateway.guest_links import GuestLinks, GuestMissing
from backendai.agent.guest.link.sockets import SOCKET, connect
from backendai.base.process.slowness import Measure
from tests.slow_machines import BUSY, QUIET, make_machine


class Place(GuestPlace):
    """Guests that ``start`` starts; usually they may take a tenth of a second."""

    start_seconds = 0.1

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start: Callable[[], object] = lambda: None

    def folder(self, kernel_id: UUID) -> Path:
        return self.path

    def was_launched(self, kernel_id: UUID) -> bool:
        return False

    def launch(self, kernel_id: UUID) -> None:
        self.start()

    def dial_in(self) -> None:
        """Connect as a guest does, and open what is asked for."""
        with connect(self.path / SOCKET, 60) as control:
            control.sendall(b'{"hello": 1}\n')
            name = control.makefile().readline().partition(': "')[2].partition('"')[0]
            with connect(self.path / SOCKET, 60) as stream:
                stream.sendall(b'{"stream": "%s"}\nhello\n' % name.encode())
                control.recv(1)


@pytest.fixture
def place() -> Iterator[Place]:
    with TemporaryDirectory(dir="/tmp") as folder:  # the path of a socket is short
        yield Place(Path(folder))


async def opened(place: Place) -> bytes:
    links = GuestLinks(place)
    try:
        reader, writer = await links.open(uuid4())
        line = await reader.readline()
        writer.close()
        return line
    finally:
        links.close()


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (QUIET, "(python3)."),
        (BUSY, "(python3). This machine is busy now (load 12 on 2 cores), which may be the cause."),
        (QUIET._replace(pace=3.0), "(python3). This machine is slow or busy now, which may be the cause."),
    ],
)
def test_a_guest_that_does_not_start_is_told_with_the_machine_as_a_cause(
    place: Place, monkeypatch: pytest.MonkeyPatch, found: Measure, says: str
) -> None:
    make_machine(monkeypatch, found)
    with pytest.raises(GuestMissing) as caught:
        asyncio.run(opened(place))
    text = str(caught.value.message)
    assert text.startswith("The guest agent did not start within ") and text.endswith(says), text
    assert caught.value.code == "guest-does-not-start"


def test_a_machine_that_becomes_busy_during_the_start_gives_it_more_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_machine(monkeypatch)
    waited: list[float] = []

    def longest() -> float:
        """A limit that is over at the first look, and longer at the second, when the guest begins."""
        waited.append(0.01 if not waited else 60.0)
        if len(waited) == 2:
            threading.Thread(target=place.dial_in, daemon=True).start()
        return waited[-1]

    monkeypatch.setattr(place, "longest_start", longest)
    assert asyncio.run(opened(place)) == b"hello\n"
    assert waited[:2] == [0.01, 60.0]
