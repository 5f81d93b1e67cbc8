"""A restore from a backup loses nothing that runs: the drill of docs/operations.md, on both databases."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest

from tests.patience import patient, until
from tests.system.client import TERMINAL
from tests.system.platform import ROOT, Platform
from tests.system.stores import stores

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.usefixtures("tiny_image")]

SEVERAL_SYNCS = 17.0  # an agent removes what two answers in a row call over; it syncs every 5 s
Drill = tuple[Platform, Callable[[], None], Callable[[], None]]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def drill(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Drill]:
    """A running platform, how its database is saved, and how it is restored while the platform is stopped."""
    backup = str(tmp_path / "backup.tar.gz")
    with ExitStack() as stack:
        extra = {}
        if request.param == "postgresql":
            servers = stack.enter_context(stores())
            extra = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        platform = stack.enter_context(Platform(tmp_path / "data", extra=extra))
        yield platform, lambda: run(platform, "backup", backup), lambda: run(platform, "restore", backup, "--force")


def run(platform: Platform, *words: str) -> None:
    command = [sys.executable, "manage.py", *words]
    subprocess.run(command, cwd=ROOT, env=platform.environment, check=True, timeout=patient(60))


def test_sessions_that_began_after_the_backup_run_on_and_are_adopted(drill: Drill) -> None:
    platform, save, restore = drill
    client = platform.client
    before = client.wait_until_running(client.launch("before")["id"])
    ended = client.wait_until_running(client.launch("ended")["id"])
    save()
    client.end(ended["id"])
    after = client.wait_until_running(client.launch("after")["id"])
    with client.terminal(after["id"]) as terminal:
        terminal.run("echo thesis > work.txt; cat work.txt", r"\bthesis\b")
    lives = platform.lives()
    platform.stop()
    restore()
    platform.start()

    time.sleep(SEVERAL_SYNCS)
    assert platform.lives() == lives, "nothing was ended or started"
    assert client.session(before["id"])["status"] == "RUNNING"
    client.wait_for(ended["id"], *TERMINAL)
    (unknown,) = client.unknown_kernels()
    assert (unknown["session_name"], UUID(unknown["kernel_id"])) == ("after", UUID(after["kernels"][0]["id"]))
    waiting = client.launch("waiting")
    until(lambda: client.session(waiting["id"])["status_message"], 15, "the wait has a reason")
    assert client.session(waiting["id"])["status"] == "PENDING"

    client.adopt(unknown["id"])
    client.wait_until_running(after["id"])
    assert platform.lives().items() >= lives.items(), "its container is the one of before"
    with client.terminal(after["id"]) as terminal:
        terminal.run("cat work.txt", r"\bthesis\b")
    client.wait_until_running(waiting["id"])
    platform.audit()
