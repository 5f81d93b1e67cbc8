"""Connections are looked at from the moment in which they may open something, whatever was in the way before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import asyncssh
import pytest
from asgiref.sync import sync_to_async
from django.db import InterfaceError

from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.gates.sshgate import visit
from backendai.gates.sshgate.entrances import Entrance, ShellTarget, open_at
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.sshgate.stage import Stage, connect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set: the database does not say what may be opened. It still says who signs in."""
    is_away = threading.Event()

    def answer(entrance: Entrance, now: datetime) -> ShellTarget:
        if is_away.is_set():
            raise InterfaceError("the connection is closed")
        return open_at(entrance, now)

    monkeypatch.setattr(visit, "open_at", answer)
    return is_away


async def cut_with_the_key(cast: Cast, connection: asyncssh.SSHClientConnection) -> None:
    """Open a program, delete the key, and wait until the connection is cut."""
    process = await connection.create_process("echo on; exec sleep 60")
    assert await process.stdout.readline() == "on\n"
    await sync_to_async(cast.alice.ssh_keys.all().delete)()
    async with asyncio.timeout(patient(10)):
        await connection.wait_closed()


def test_a_database_that_is_away_after_the_sign_in_leaves_nothing_unwatched(
    away: threading.Event, cast: Cast, here: Stage, key: Path, session: ComputeSession
) -> None:
    async def walk() -> None:
        async with connect(here, key) as connection:
            assert "cannot be asked now" in str((await connection.run("echo on")).stderr)
            away.clear()
            await cut_with_the_key(cast, connection)

    away.set()
    asyncio.run(walk())
    actions = AuditEntry.objects.filter(target_id=str(session.pk)).values_list("action", flat=True)
    assert {"ssh.connect", "ssh.disconnect"} <= set(actions)


@pytest.fixture
def started(cast: Cast, here: Stage) -> Iterator[list[ComputeSession]]:
    """Sessions that a test starts; their kernels are removed behind it."""
    sessions: list[ComputeSession] = []
    yield sessions
    for session in sessions:
        for kernel in session.kernels.all():
            here.backend.remove(kernel.pk)


def test_an_open_connection_reaches_the_session_that_starts_later(
    cast: Cast, here: Stage, key: Path, started: list[ComputeSession]
) -> None:
    def start() -> None:
        started.append(make_running_session(cast.alice, name="train"))
        here.run_kernels(started[0])

    async def walk() -> None:
        async with connect(here, key) as connection:
            assert "You have no session 'train'" in str((await connection.run("echo on")).stderr)
            await sync_to_async(start)()
            await cut_with_the_key(cast, connection)

    asyncio.run(walk())
