"""A file system that is really full under the database: honest errors, nothing half written, no restart needed."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import OperationalError, connection, connections
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from backendai.agent.portal.client import PortalClient, PortalUnreachable
from backendai.base.db.database_faults import is_full
from backendai.base.wire.messages import JoinUp
from backendai.domain.accounts.services import create_token
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.ops.run.console import LogFile
from backendai.portal.http import database_away
from tests.cast import Cast
from tests.controller.clocks import sync_of
from tests.factories import make_group, make_image, make_session

pytestmark = pytest.mark.django_db(transaction=True)
LAUNCH = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}}
SIZE, RESERVE = 40 * 2**20, 8 * 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def moved_to(disk: Path) -> Iterator[None]:
    """Let everybody use a copy of the database on that disk, with everything that was written so far."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL's disk is its own server's")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(disk / "portal.sqlite3")])
    connections.close_all()
    with (
        mock.patch.dict(connections.settings["default"], {"NAME": str(disk / "portal.sqlite3")}),
        mock.patch.object(database_away, "_full_burst", database_away._Burst("a disk is full; answered 507")),
    ):
        yield
        connections.close_all()


def fill(disk: Path, *, leave: int = 0) -> Path:
    """Take all space of the disk but so much; removing the file gives it back."""
    file = disk / "filler"
    free = shutil.disk_usage(disk).free - leave
    with file.open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, free)
    return file


def client_of(cast: Cast) -> Client:
    token = create_token(cast.alice, "one")[1]
    return Client(raise_request_exception=False, headers={"authorization": f"Bearer {token}"})


def launch(client: Client, name: str) -> Any:
    return client.post("/api/v1/sessions/", {**LAUNCH, "name": name}, "application/json")


def test_writing_is_refused_reading_goes_on_and_it_heals(cast: Cast, disk: Path) -> None:
    make_group()
    make_image()
    client, browser = client_of(cast), Client(raise_request_exception=False)
    browser.force_login(cast.alice)
    with moved_to(disk):
        assert launch(client, "before").status_code == 201
        filler = fill(disk)
        answers = [launch(client, f"during-{number}") for number in range(10)]
        shown, listed = browser.get("/"), client.get("/api/v1/sessions/")
        posted = Client(raise_request_exception=False).post("/login/", {"username": "a@b.test", "password": "x"})
        made = ComputeSession.objects.count()
        kernels = Kernel.objects.count()
        filler.unlink()
        after = launch(client, "after")
        with connection.cursor() as cursor:
            assert cursor.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    refused = [answer for answer in answers if answer.status_code != 201]
    assert refused
    assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(507, "storage-full")}
    assert refused[0]["Retry-After"] == "60" and "full" in refused[0].json()["detail"]
    assert made == kernels == 1 + len(answers) - len(refused)
    assert (shown.status_code, listed.status_code, after.status_code) == (200, 200, 201)
    assert posted.status_code == 507 and "must free space" in posted.content.decode()


def test_sessions_end_while_launches_are_refused(cast: Cast, disk: Path, settings: Any) -> None:
    settings.DISK_RESERVE = RESERVE
    session, client = make_session(cast.alice), client_of(cast)
    with moved_to(disk):
        fill(disk, leave=RESERVE - 2**20)
        refused = launch(client, "more")
        ended = client.post(f"/api/v1/sessions/{session.pk}/terminate/", {}, "application/json")
        status = ComputeSession.objects.get(pk=session.pk).status
        assert ComputeSession.objects.count() == 1
    assert (refused.status_code, refused.json()["code"]) == (507, "storage-full")
    assert "8 MiB" in refused.json()["detail"]
    assert (ended.status_code < 300, status) == (True, Status.CANCELLED)


def test_for_nodes_the_portal_is_unreachable(live_server: LiveServer) -> None:
    token = join_agent(JoinUp(token=create_join_token(make_group()), name="n-1", gateway_url=""))[1]
    node = PortalClient(live_server.url, token)
    full = OperationalError("full")
    full.__cause__ = psycopg.errors.DiskFull()
    with (
        mock.patch("backendai.portal.agents.views.record_sync", side_effect=full),
        pytest.raises(PortalUnreachable, match="HTTP 507"),
    ):
        node.sync(sync_of())
    assert node.sync(sync_of()).stop == []
    node.close()


def test_the_log_has_one_line_for_many(cast: Cast, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(cast)
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch.object(database_away, "_full_burst", database_away._Burst("a disk is full; answered 507")),
        mock.patch("backendai.domain.compute.services.launching.create.check_spec", side_effect=full),
        caplog.at_level(logging.INFO),
    ):
        answers = {launch(client, "one").status_code for _ in range(3)}
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert answers == {507}
    assert len(logged) == 1 and "a disk is full" in logged[0].message


def test_a_log_file_goes_on_after_a_full_disk(disk: Path) -> None:
    log = LogFile(disk / "a.log", limit=1000)
    log.write(b"before\n")
    filler = fill(disk)
    for _ in range(2000):
        log.write(b"x" * 99 + b"\n")
    with mock.patch("os.open", side_effect=OSError(errno.ENOSPC, "full")):
        for _ in range(20):
            log.write(b"y" * 99 + b"\n")  # the file is changed, and there is no room for a new one
    filler.unlink()
    log.write(b"after\n")
    log.close()
    assert (disk / "a.log").read_bytes().endswith(b"after\n")


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("cause", "full"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), True),
        (sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE), True),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), False),
        (sqlite_error(sqlite3.SQLITE_BUSY), False),
        (psycopg.errors.DiskFull(), True),
        (psycopg.errors.LockNotAvailable(), False),
    ],
)
def test_only_errors_of_room_mean_a_full_disk(cause: Exception, full: bool) -> None:
    error = OperationalError("x")
    error.__cause__ = cause
    assert is_full(error) is full
    assert is_full(OSError(errno.EDQUOT, "quota")) and not is_full(OSError(errno.EACCES, "no"))
