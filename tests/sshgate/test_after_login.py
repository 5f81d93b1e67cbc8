"""What somebody who is signed in sends to the gate: floods, nonsense and ways to where they have no business."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import Boolean, Byte, String, UInt32

from backendai.domain.compute.models import ComputeSession
from backendai.gates.sshgate.visit import MOST_CHANNELS
from tests.patience import patient
from tests.sshgate.stage import Stage, connect
from tests.sshgate.test_hostile import FOREIGN

pytestmark = pytest.mark.django_db(transaction=True)
Connection = asyncssh.SSHClientConnection
_MOST_GROWN = 64 * 2**20
_GLOBAL, _OPEN, _ADJUST, _DATA, _EXTENDED, _EOF, _CLOSE, _REQUEST = 80, 90, 93, 94, 95, 96, 97, 98


async def refused(opening: Awaitable[Any], *reasons: int) -> None:
    with pytest.raises((asyncssh.ChannelOpenError, asyncssh.ChannelListenError)) as found:
        await opening
    if reasons:
        assert found.value.code in reasons


def test_no_way_leads_out_of_the_session(here: Stage, key: Path, session: ComputeSession) -> None:
    async def walk() -> None:
        async with connect(here, key) as connection:
            for host in [*FOREIGN[:-3], "127.0.0.1.", "train", "sub1"]:
                if host == "127.0.0.1.":
                    continue
                await refused(connection.open_connection(host, 80), asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED)
            for port in (0, 65536, 2**31, 2**32 - 1):
                await refused(connection.open_connection("localhost", port), asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED)
            for path in ("", "relative", "/" + "x" * 200, "/nothing/there", "/run/docker.sock", "/a\0b"):
                await refused(connection.open_unix_connection(path))
            await refused(connection.start_server(lambda *_: None, "", 0))
            await refused(connection.start_server(lambda *_: None, "127.0.0.1", 8080))
            await refused(connection.start_unix_server(lambda *_: None, "/tmp/sock"))
            for subsystem in ("shell", "netconf", "x" * 10_000, "sftp "):
                await refused(connection.create_session(asyncssh.SSHClientSession, subsystem=subsystem))
            assert (await connection.run("echo on")).stdout == "on\n"

    asyncio.run(walk())


def flood(number: int, kind: int, *parts: bytes) -> Callable[[Connection], Awaitable[None]]:
    async def send(connection: Connection) -> None:
        for _ in range(number):
            connection.send_packet(kind, *parts)

    return send


async def open_many(connection: Connection) -> None:
    """Programs up to the limit run, and the next one is refused."""
    found = await asyncio.gather(
        *(connection.create_process("cat") for _ in range(MOST_CHANNELS + 8)), return_exceptions=True
    )
    assert sum(isinstance(one, asyncssh.ChannelOpenError) for one in found) == 8, found


async def odd_terminals(connection: Connection) -> None:
    for cols, rows in ((0, 0), (2**32 - 1, 2**32 - 1), (10**6, 1)):
        told = await connection.run("stty size", term_type="x" * 300, term_size=(cols, rows, 0, 2**32 - 1))
        assert told.exit_status == 0


async def foreign_variables(connection: Connection) -> None:
    """Variables that steer programs are left out, and so are those beyond the limit."""
    names = {"LD_PRELOAD": "x", "PATH": "/evil", "BASH_ENV": "x", "PYTHONPATH": "x", "HOME": "/evil"}
    names |= {f"LC_{number}": "v" * 100 for number in range(300)} | {"LANG": "x" * 10_000}
    told = str((await connection.run("env", env=names)).stdout)
    assert not any(line.startswith(("LD_PRELOAD", "BASH_ENV", "PYTHONPATH")) for line in told.splitlines())
    assert "evil" not in told and told.count("\nLC_") <= 64


async def odd_signals(connection: Connection) -> None:
    process = await connection.create_process("exec sleep 60")
    for name in ("", "NONSENSE", "x" * 5000, "KILL9", "../1"):
        process.send_signal(name)
    for _ in range(500):
        process.change_terminal_size(80, 24)
        process.send_signal("WINCH")
    process.send_signal("KILL")
    assert (await process.wait()).exit_signal is not None


async def never_reading(connection: Connection) -> None:
    """What nobody reads is not kept anywhere: the program waits."""
    process = await connection.create_process("yes", encoding=None)
    before = resident()
    await asyncio.sleep(1.5)
    assert resident() - before < _MOST_GROWN
    process.kill()


async def sends_what_nobody_reads(connection: Connection) -> None:
    process = await connection.create_process("sleep 60", encoding=None)
    before = resident()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.5):
            while True:
                process.stdin.write(b"x" * 65536)
                await process.stdin.drain()
    assert resident() - before < _MOST_GROWN
    process.kill()


async def rekeys(connection: Connection) -> None:
    for _ in range(5):
        connection._send_kexinit()
        await asyncio.sleep(0.05)


async def no_packet_size(connection: Connection) -> None:
    """A channel whose other side takes no packets, or no window, holds up itself alone."""
    for window, packet in ((0, 0), (2**31, 0), (0, 2**31), (2**32 - 1, 2**32 - 1)):
        connection.send_packet(_OPEN, String("session"), UInt32(77), UInt32(window), UInt32(packet))
    await asyncio.sleep(0.1)


ATTACKS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "channels": open_many,
    "terminals": odd_terminals,
    "variables": foreign_variables,
    "signals": odd_signals,
    "never reading": never_reading,
    "never read": sends_what_nobody_reads,
    "rekeys": rekeys,
    "packet size": no_packet_size,
    "unknown channels": flood(500, _OPEN, String("nonsense"), UInt32(5), UInt32(10), UInt32(10)),
    "x11 channel": flood(1, _OPEN, String("x11"), UInt32(5), UInt32(10), UInt32(10), String("h"), UInt32(1)),
    "forwarded channel": flood(
        1, _OPEN, String("forwarded-tcpip"), UInt32(5), UInt32(9), UInt32(9), *[String("h"), UInt32(1)] * 2
    ),
    "agent channel": flood(1, _OPEN, String("auth-agent@openssh.com"), UInt32(5), UInt32(9), UInt32(9)),
    "tunnel channel": flood(1, _OPEN, String("tun@openssh.com"), UInt32(5), UInt32(9), UInt32(9), UInt32(1), UInt32(0)),
    "short open": flood(1, _OPEN, String("session")),
    "direct without address": flood(1, _OPEN, String("direct-tcpip"), UInt32(5), UInt32(9), UInt32(9)),
    "no text": flood(1, _OPEN, String(b"\xff\xfe"), UInt32(5), UInt32(9), UInt32(9)),
    "global requests": flood(500, _GLOBAL, String("nonsense@example.org"), Boolean(False)),
    "no more sessions": flood(2, _GLOBAL, String("no-more-sessions@openssh.com"), Boolean(False)),
    "hostkeys": flood(5, _GLOBAL, String("hostkeys-prove-00@openssh.com"), Boolean(True), String(b"x")),
    "remote forward": flood(50, _GLOBAL, String("tcpip-forward"), Boolean(True), String(""), UInt32(0)),
    "cancelled forward": flood(5, _GLOBAL, String("cancel-tcpip-forward"), Boolean(True), String("x"), UInt32(1)),
    "data nowhere": flood(50, _DATA, UInt32(999), String(b"x" * 1000)),
    "extended nowhere": flood(1, _EXTENDED, UInt32(999), UInt32(1), String(b"x")),
    "end of nothing": flood(1, _EOF, UInt32(999)),
    "close of nothing": flood(1, _CLOSE, UInt32(2**32 - 1)),
    "request nowhere": flood(1, _REQUEST, UInt32(999), String("exec"), Boolean(True), String("id")),
    "window nowhere": flood(1, _ADJUST, UInt32(999), UInt32(2**32 - 1)),
    "empty packet": flood(1, _DATA),
    "unknown packet": flood(100, 200, String(b"x")),
    "ignored": flood(2000, 2, String(b"x" * 1000)),
    "debug": flood(200, 4, Boolean(True), String("\x1b[2J" * 100), String("")),
    "signs in again": flood(5, 50, String("bob"), String("ssh-connection"), String("none")),
    "service again": flood(5, 5, String("ssh-userauth")),
    "asks as a server": flood(1, 52),
    "disconnects": flood(1, 1, UInt32(11), String("bye"), String("")),
    "unimplemented": flood(50, 3, UInt32(1)),
    "confirms nothing": flood(1, 91, UInt32(9), UInt32(9), UInt32(9), UInt32(9)),
    "kex init is garbage": flood(1, 20, Byte(0) * 16, *[String(b"")] * 10, Boolean(False), UInt32(0)),
    "long name": flood(1, _GLOBAL, String(b"x" * 200_000), Boolean(True)),
}  # fmt: skip


@pytest.mark.long
def test_attacks_hold_up_nobody_and_leave_nothing_behind(here: Stage, key: Path, session: ComputeSession) -> None:
    async def strike(attack: Callable[[Connection], Awaitable[None]]) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):  # the gate may hang up on who breaks the protocol
            async with asyncio.timeout(patient(20)), connect(here, key) as connection:
                await attack(connection)
                await asyncio.sleep(0.02)
                connection.abort()

    async def walk() -> None:
        async with connect(here, key) as bystander:
            before = 0
            for name, attack in ATTACKS.items():
                await strike(attack)
                told = await asyncio.wait_for(bystander.run("echo on"), patient(10))
                assert told.stdout == "on\n", name
                before = before or resident()
            assert resident() - before < _MOST_GROWN
            async with asyncio.timeout(patient(20)):  # what was left behind is hung up
                while str((await bystander.run("pgrep -fx 'cat|yes|sleep 60'")).stdout).strip():
                    await asyncio.sleep(0.2)

    asyncio.run(walk())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
