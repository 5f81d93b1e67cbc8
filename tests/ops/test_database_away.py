"""While the database is away requests are answered 503, and nothing else is taken for that."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import psycopg_pool
import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.db import DatabaseError, InterfaceError, OperationalError, connection, connections
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from backendai.agent.portal.client import PortalClient, PortalUnreachable
from backendai.base.db.database_faults import is_away, is_busy
from backendai.base.wire.messages import JoinUp
from backendai.celery import app
from backendai.domain.accounts.services import create_token
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.portal.http import database_away
from backendai.portal.loops import outages, tasks
from backendai.portal.realtime.routing import websocket_application
from tests.cast import Cast
from tests.controller.clocks import sync_of
from tests.factories import make_group
from tests.patience import patient
from tests.realtime.sockets import PORTAL

pytestmark = pytest.mark.django_db(transaction=True)
SENTENCE = "The database does not answer. Try again in a few seconds."


@contextmanager
def outage() -> Iterator[None]:
    """Let nobody reach the database: a folder that is not there, or a port where nobody listens."""
    connections.close_all()
    asyncio.run(sync_to_async(connections.close_all)())  # those of the thread that earlier tests of sockets left
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told = {"PORT": taken.getsockname()[1]} if connection.vendor == "postgresql" else {"NAME": "/absent/one.db"}
        with (
            mock.patch.dict(connections.settings["default"], told),
            mock.patch.object(database_away, "_burst", database_away._Burst()),
        ):
            yield
        connections.close_all()


@pytest.fixture
def visitor(cast: Cast) -> Client:
    """Alice's browser: an error is an answer, as for a real one."""
    client = Client(raise_request_exception=False)
    client.force_login(cast.alice)
    return client


def node_token() -> str:
    return join_agent(JoinUp(token=create_join_token(make_group()), name="n-1", gateway_url=""))[1]


@pytest.mark.parametrize("path", ["/", "/sessions/", "/account/", "/manage/"])
def test_a_page_is_answered_503(visitor: Client, path: str) -> None:
    with outage():
        answer = visitor.get(path)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert "Try again in a few seconds." in answer.content.decode()
    assert visitor.get(path).status_code != 503


def test_a_login_is_answered_503() -> None:
    with outage():
        answer = Client(raise_request_exception=False).post("/login/", {"username": "a@b.test", "password": "x"})
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")


def test_rest_answers_a_problem(cast: Cast, visitor: Client) -> None:
    token = create_token(cast.alice, "one")[1]
    with outage():
        answers = [
            visitor.get("/api/v1/sessions/"),
            Client(raise_request_exception=False).get("/api/v1/me/", HTTP_AUTHORIZATION=f"Bearer {token}"),
        ]
    for answer in answers:
        assert (answer.status_code, answer["Retry-After"]) == (503, "5")
        assert answer["Content-Type"] == "application/problem+json"
        assert (answer.json()["code"], answer.json()["detail"]) == ("database-unavailable", SENTENCE)


def test_for_nodes_the_portal_is_unreachable(live_server: LiveServer) -> None:
    node = PortalClient(live_server.url, node_token())
    with outage(), pytest.raises(PortalUnreachable, match="HTTP 503"):
        node.sync(sync_of())
    assert node.sync(sync_of()).stop == []
    node.close()


def test_a_websocket_is_refused_and_not_signed_out(visitor: Client) -> None:
    async def knock() -> Any:
        cookie = "; ".join(f"{name}={one.value}" for name, one in visitor.cookies.items())
        headers = [(b"cookie", cookie.encode()), PORTAL, (b"origin", b"http://portal.example")]
        talk = ApplicationCommunicator(
            websocket_application, {"type": "websocket", "path": "/ws/events/", "headers": headers, "query_string": b""}
        )
        await talk.send_input({"type": "websocket.connect"})
        return await talk.receive_output(timeout=patient(30))

    with outage():
        said = asyncio.run(knock())
        asked = visitor.get("/api/v1/me/")
    assert said["type"] == "websocket.close"  # before it was accepted, without the code of a lost login
    assert said.get("code") in (None, 1000)
    assert asked.status_code == 503  # by which the page knows that it may try again


def test_the_log_has_one_line_for_many(visitor: Client, caplog: pytest.LogCaptureFixture) -> None:
    with outage(), caplog.at_level(logging.INFO):
        for _ in range(5):
            visitor.get("/")
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(said) == 1
    assert "the database does not answer" in said[0].message and said[0].exc_info is None


@pytest.mark.parametrize("cause", [psycopg.errors.LockNotAvailable(), psycopg.errors.QueryCanceled()])
def test_a_lock_or_a_statement_that_took_too_long_is_answered_503(
    cast: Cast, visitor: Client, cause: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    error = wrapped(OperationalError, cause)
    with (
        mock.patch("backendai.portal.api.sessions.views.launch_session", side_effect=error),
        mock.patch.object(database_away, "_busy_burst", database_away._Burst("the database gave up")),
        caplog.at_level(logging.INFO),
    ):
        sent = {"name": "quick", "type": "interactive", "image": "python", "resources": {"cpu": 1, "mem": "512m"}}
        answer = visitor.post("/api/v1/sessions/", sent, content_type="application/json")
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, "database-busy", "2")
    assert answer["Content-Type"] == "application/problem+json"
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(said) == 1 and said[0].exc_info is None


def test_a_fault_of_ours_stays_one(visitor: Client) -> None:
    with mock.patch("django.db.backends.base.base.BaseDatabaseWrapper.cursor", side_effect=OperationalError("no such")):
        answer = visitor.get("/")
    assert answer.status_code == 500


def wrapped(kind: type[DatabaseError], cause: Exception) -> Exception:
    error = kind(str(cause))
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (wrapped(OperationalError, psycopg.OperationalError("connection refused")), True),
        (wrapped(OperationalError, psycopg_pool.PoolTimeout("no connection after 10 s")), True),
        (wrapped(OperationalError, psycopg.errors.AdminShutdown()), True),
        (wrapped(OperationalError, psycopg.errors.CannotConnectNow()), True),
        (wrapped(OperationalError, psycopg.errors.TooManyConnections()), True),
        (wrapped(OperationalError, psycopg.errors.QueryCanceled()), False),
        (wrapped(OperationalError, psycopg.errors.DeadlockDetected()), False),
        (wrapped(OperationalError, psycopg.errors.LockNotAvailable()), False),
        (wrapped(DatabaseError, psycopg.errors.UndefinedTable()), False),
        (wrapped(InterfaceError, psycopg.InterfaceError("the cursor is closed")), False),
        (wrapped(OperationalError, sqlite3.OperationalError("no such table")), False),
        (OperationalError("of our own"), False),
        (KeyError("one"), False),
    ],
)
def test_errors_of_connecting_and_no_others_mean_that_it_is_away(error: Exception, away: bool) -> None:
    assert is_away(error) is away


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (wrapped(OperationalError, psycopg.errors.LockNotAvailable()), True),
        (wrapped(OperationalError, psycopg.errors.QueryCanceled()), True),
        (wrapped(OperationalError, psycopg.errors.DeadlockDetected()), True),
        (wrapped(OperationalError, psycopg.OperationalError("connection refused")), False),
        (wrapped(DatabaseError, psycopg.errors.UndefinedTable()), False),
        (wrapped(OperationalError, sqlite3.OperationalError("no such table")), False),
        (OperationalError("of our own"), False),
    ],
)
def test_what_may_succeed_when_it_is_tried_again_means_that_it_is_busy(error: Exception, busy: bool) -> None:
    assert is_busy(error) is busy


def test_a_lock_of_another_writer_of_sqlite_means_that_it_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as one, closing(sqlite3.connect(path, timeout=0)) as two:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as refused:
            two.execute("BEGIN IMMEDIATE")
    assert is_busy(wrapped(OperationalError, refused.value))


def test_the_control_worker_says_in_one_line_that_it_is_away_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    all_of_them = [tasks.run_pass, tasks.run_repair, tasks.run_idle, tasks.follow_jobs]
    assert isinstance(app.tasks["controller.run_pass"], outages.OutageTask)
    outages.note_answer()
    with outage(), caplog.at_level(logging.INFO):
        for task in all_of_them * 2:
            task()
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.exc_info for record in said] == [None]
    assert said[0].message.startswith("the database does not answer; passes go on when it does")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        tasks.run_pass()
        tasks.run_pass()
    assert [record.message for record in caplog.records if record.name.endswith("outages")] == [
        "the database answers again"
    ]


def test_a_fault_of_a_task_keeps_its_traceback() -> None:
    with (
        mock.patch("backendai.portal.loops.loops.run_pass", side_effect=ValueError("ours")),
        pytest.raises(ValueError, match="ours"),
    ):
        tasks.run_pass()
