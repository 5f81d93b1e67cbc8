"""What counts as use of a session, by all real parts: client, gate, meter, table, and the pass that ends idle ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from backendai.domain.cluster.idle.checkers import Places, write_checker
from backendai.domain.cluster.models import IdleChecker
from backendai.domain.compute.models import ComputeSession, SessionTraffic
from backendai.domain.compute.services.records.traffic import meter
from backendai.domain.compute.status import Status
from backendai.portal.loops import idle
from tests.controller.clocks import passes_went_on_until
from tests.sshgate.stage import Stage, connect

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = timedelta(hours=1)
_SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection = server.accept()[0]
while data := connection.recv(65536):
    connection.sendall(data)
"""
_LISTENING = f"exec python3 -c '{_SERVER}'"
Act = Callable[[asyncssh.SSHClientConnection, Any, str], Awaitable[None]]


@pytest.fixture(autouse=True)
def used() -> None:
    """The meter is the real one here."""


async def through_tunnel(connection: asyncssh.SSHClientConnection, port: str, size: int) -> None:
    reader, writer = await connection.open_connection("localhost", int(port))
    for _ in range(12):
        writer.write(b"x" * size)
        await reader.readexactly(size)


async def keeps_alive(connection: asyncssh.SSHClientConnection, _: Any, port: str) -> None:
    """What an editor sends while nobody works: 13 bytes every five seconds, here a minute of them."""
    await through_tunnel(connection, port, 13)


async def works(connection: asyncssh.SSHClientConnection, _: Any, port: str) -> None:
    await through_tunnel(connection, port, 1000)


async def types(_: asyncssh.SSHClientConnection, process: Any, line: str) -> None:
    process.stdin.write("x")
    await process.stdout.readexactly(1)


async def runs(connection: asyncssh.SSHClientConnection, _: Any, line: str) -> None:
    await connection.run("cat", input="x")


async def copies(connection: asyncssh.SSHClientConnection, _: Any, line: str) -> None:
    async with connection.start_sftp_client() as client:
        await client.stat(".")


@pytest.mark.parametrize(
    ("act", "command", "terminal", "counts"),
    [
        (keeps_alive, _LISTENING, None, False),
        (works, _LISTENING, None, True),
        (types, "echo on; exec cat", "vt100", True),
        (runs, "echo on; exec sleep 60", None, True),
        (copies, "echo on; exec sleep 60", None, True),
    ],
)
def test_a_session_ends_for_want_of_use_and_not_for_want_of_connections(
    here: Stage, key: Path, session: ComputeSession, act: Act, command: str, terminal: str | None, counts: bool
) -> None:
    values = {"name": "quiet", "limit": LIMIT, "warning": timedelta(minutes=1)}
    write_checker(None, IdleChecker(), values, Places(is_site_wide=True))
    started = timezone.now() - 2 * LIMIT
    ComputeSession.objects.update(started_at=started)
    _look(started)

    async def walk() -> None:
        async with connect(here, key) as connection:
            process = await connection.create_process(command, term_type=terminal)
            line = await process.stdout.readline()
            await sync_to_async(_forget)(started)
            await act(connection, process, line)
            await sync_to_async(meter.write)(timezone.now(), everything=True)
            connection.abort()

    asyncio.run(walk())
    assert SessionTraffic.objects.filter(last_at__gt=started).exists() == counts
    _look(timezone.now())
    _look(timezone.now() + timedelta(minutes=20))  # after the warning
    session.refresh_from_db()
    assert (session.status == Status.RUNNING) == counts, session.status_reason


def _look(moment: datetime) -> None:
    passes_went_on_until(moment)
    idle.run_idle(moment)


def _forget(started: datetime) -> None:
    """Let the session be unused since its start, whatever the beginning of the connection was."""
    meter.write(timezone.now(), everything=True)
    SessionTraffic.objects.update(last_at=started)
