"""What attackers send to the gate: odd hosts, garbage before signing in, guests that lie."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
import uvloop

from backendai.base.wire.guest_frames import EXIT, STDERR, STDOUT, frame
from backendai.gates.gateways.site_keys import host_key, private_text
from backendai.gates.sshgate.connection import inside
from backendai.gates.sshgate.entrances import Entrance
from backendai.gates.sshgate.link import GuestRefused, _check
from backendai.gates.sshgate.server import MOST_PER_ADDRESS, MOST_PER_PERSON, Gate, network_of, serve, serving
from backendai.gates.sshgate.shell import ShellSession
from backendai.gates.sshgate.visit import ForwardUse, ShellGuard
from tests.patience import patient

NEIGHBOURS = frozenset({"main1", "sub1"})
FOREIGN = [
    "169.254.169.254",
    "10.0.0.1",
    "192.168.0.1",
    "172.17.0.1",
    "8.8.8.8",
    "example.org",
    "portal",
    "sub2",
    "main1.evil",
    "localhost.evil.org",
    "127.0.0.1.nip.io",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "fe80::1",
    "::ffff:10.0.0.1",
    "fd00::1",
    "metadata.google.internal",
    "host.docker.internal",
    "a" * 300,
    "main1\0",
    "../main1",
    "main1:80",
    "%00",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_not_forwarded_to(host: str) -> None:
    assert inside(host, NEIGHBOURS) is None


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "127.0.0.1", "127.0.0.53", "::1", "[::1]", "::ffff:127.0.0.1", "0.0.0.0", ""]
)
def test_the_loopback_is_the_kernels_own(host: str) -> None:
    assert inside(host, NEIGHBOURS) == ""
    assert inside("SUB1.", NEIGHBOURS) == "sub1"


class Channel:
    """What a session tells its client."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes, kind: Any = None) -> None:
        self.told.append(data)

    def exit(self, code: int) -> None:
        self.told.append(code)

    def exit_with_signal(self, name: str, core: bool, text: str) -> None:
        self.told.append(name)


class Nothing:
    channels = 0

    def used(self, **_: Any) -> None: ...


def heard(*pieces: bytes) -> list[Any]:
    session, channel = ShellSession(Nothing()), Channel()  # type: ignore[arg-type]
    session._channel = channel  # type: ignore[assignment]
    for piece in pieces:
        session.hear(piece)
    session.hear_end()
    return channel.told


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (frame(EXIT, b'{"code": 7}'), 7),
        (frame(EXIT, b'{"code": 700}'), 700 & 255),
        (frame(EXIT, b'{"signal": "TERM"}'), "TERM"),
        (frame(EXIT, b'{"code": "x"}'), 255),
        (frame(EXIT, b'{"code": Infinity}'), 255),
        (frame(EXIT, b"[]"), 255),
        (frame(EXIT, b"\xff"), 255),
        (frame(EXIT, b""), 255),
        (frame(EXIT, b"[" * 100_000), 255),
        (b"\x01\xff\xff\xff\xff", 255),
        (b"\x01\0\0", 255),
        (b"", 255),
        (frame(99, b"x") + frame(EXIT, b'{"code": 0}') + b"more" * 100, 0),
    ],
)
def test_a_guest_that_lies_ends_its_own_channel_only(data: bytes, last: Any) -> None:
    assert heard(data)[-1] == last
    assert heard(*(data[at : at + 1] for at in range(min(len(data), 500))), data[500:])[-1] == last


def test_a_guest_that_goes_on_after_the_exit_is_not_read_any_more() -> None:
    class Heard:
        is_read = True

        def pause(self) -> None:
            self.is_read = False

    session, link = ShellSession(Nothing()), Heard()  # type: ignore[arg-type]
    session._channel, session._link = Channel(), link  # type: ignore[assignment]
    session.hear(frame(EXIT, b'{"code": 0}'))
    session.hear(b"more")
    assert not link.is_read


def test_streams_are_kept_apart() -> None:
    told = heard(frame(STDOUT, b"out") + frame(STDERR, b"err") + frame(EXIT, b'{"code": 3}'))
    assert told == [b"out", b"err", 3]


@pytest.mark.parametrize(
    "line", [b"", b"nonsense", b"[]", b"1", b'{"error": 1}', b'{"error": {}}', b"[" * 50_000, b"\xff\xfe"]
)
def test_an_answer_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(GuestRefused):
        _check(line)


def test_what_a_guest_says_cannot_steer_a_terminal() -> None:
    with pytest.raises(GuestRefused) as refused:
        _check(b'{"error": {"code": "x", "message": "\\u001b[2Jgone"}}')
    assert refused.value.message == "[2Jgone"


def test_keepalives_of_editors_are_no_use() -> None:
    use = ForwardUse()
    assert not any(use.counts(13) for _ in range(100))
    assert use.counts(4096)


def test_one_person_has_so_many_connections_and_no_more() -> None:
    gate = Gate.__new__(Gate)
    gate._people = Counter()
    one, other = Entrance(uuid4(), uuid4()), Entrance(uuid4(), uuid4())
    assert all(gate._admit(one) for _ in range(MOST_PER_PERSON)) and not gate._admit(one)
    assert gate._admit(other)
    gate._leave(one)
    assert gate._admit(one)


GARBAGE = [
    b"GET / HTTP/1.0\r\n\r\n",
    b"\0" * 70_000,
    b"SSH-1.5-old\r\n",
    b"SSH-2.0-" + b"x" * 70_000,
    b"SSH-2.0-x\r\n" + b"\xff" * 4096,
    b"SSH-2.0-x\r\n\0\0\0\0\0",
    b"SSH-2.0-x\r\n\x7f\xff\xff\xff\x04",
    b"\r\n" * 5000,
    b"\x16\x03\x01\x02\0\x01",
    b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x15" + bytes(10),
]


async def banner(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await asyncio.wait_for(reader.read(8), patient(5))
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_garbage_and_half_open_connections_hold_up_nobody() -> None:
    async def walk() -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = listener.getsockname()[1]
        async with serving(listener):
            for data in GARBAGE:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                await asyncio.sleep(0.02)
                writer.close()
            async with asyncio.timeout(patient(20)):  # they are forgotten as they leave
                while await banner(port) != b"SSH-2.0-":
                    await asyncio.sleep(0.1)
            await asyncio.sleep(0.2)
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_PER_ADDRESS)]
            await asyncio.sleep(0.2)
            assert await banner(port) == b""
            for _, writer in idle:
                writer.close()
            async with asyncio.timeout(patient(20)):
                while await banner(port) != b"SSH-2.0-":
                    await asyncio.sleep(0.1)
        listener.close()

    uvloop.run(walk())


def test_a_client_of_ipv6_is_counted_by_its_network() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") != network_of("2001:db8:0:1::1")
    assert network_of("1.2.3.4") == "1.2.3.4/32" and network_of("fe80::1%eth0") == network_of("fe80::2")


def test_a_gate_whose_watch_fails_does_not_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("nobody is looked at any more")

    monkeypatch.setattr(ShellGuard, "watch", fail)
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        uvloop.run(serve("127.0.0.1", 0))


def test_the_host_key_is_the_same_every_time() -> None:
    assert private_text(host_key()).startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert host_key().public_key() == host_key().public_key()
