"""A request can be followed: the answer's head, the page of an error, the log and the audit trail have one id."""

from __future__ import annotations

import json
import logging
import socket
from datetime import datetime
from logging.config import dictConfig
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.test import Client
from django.utils.module_loading import import_string

from backendai.domain.accounts.services import create_token
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.request_facts import RequestFacts, client_address, request_id, within_request
from backendai.domain.activity.services import audit
from backendai.portal.http.request_ids import HEADER, AddRequestId
from backendai.settings import environment
from tests.cast import Cast
from tests.factories import make_session

pytestmark = pytest.mark.django_db
ADDRESS = "203.0.113.9"


@pytest.fixture
def script(cast: Cast) -> Client:
    token = create_token(cast.alice, "one")[1]
    return Client(raise_request_exception=False, headers={"authorization": f"Bearer {token}"}, REMOTE_ADDR=ADDRESS)


def test_each_answer_has_an_id_of_its_own(client: Client) -> None:
    answers = [
        client.get(path, headers={"X-Request-ID": "of-the-client"}) for path in ("/login/", "/login/", "/absent")
    ]
    ids = {answer[HEADER] for answer in answers}
    assert len(ids) == 3 and all(len(each) == 12 for each in ids)
    assert (request_id(), client_address()) == ("", "")


def test_the_audit_trail_has_address_and_id(cast: Cast, script: Client) -> None:
    session = make_session(cast.alice)
    answer = script.post(f"/api/v1/sessions/{session.pk}/terminate/", {}, "application/json")
    entry = AuditEntry.objects.get(action="session.terminate")
    assert (entry.address, entry.request_id) == (ADDRESS, answer[HEADER])


def test_a_refused_attempt_has_them_too(cast: Cast, script: Client) -> None:
    foreign = make_session(cast.charlie, project="other")
    answer = script.post(f"/api/v1/sessions/{foreign.pk}/terminate/", {}, "application/json")
    assert answer.status_code == 404
    entry = AuditEntry.objects.get(action__startswith="refused.")
    assert (entry.address, entry.request_id) == (ADDRESS, answer[HEADER])


def test_what_the_platform_does_itself_has_neither(cast: Cast) -> None:
    audit(None, "some.action", "thing", ["1"])
    entry = AuditEntry.objects.get(action="some.action")
    assert (entry.address, entry.request_id) == ("", "")


def test_a_fault_shows_the_id_that_the_log_has(cast: Cast, script: Client, caplog: pytest.LogCaptureFixture) -> None:
    visitor = Client(raise_request_exception=False)
    visitor.force_login(cast.alice)
    broken = mock.patch(
        "backendai.domain.compute.querysets.SessionQuerySet.visible_to", side_effect=RuntimeError("broken")
    )
    with broken, caplog.filtering(AddRequestId()):
        answers = [script.get("/api/v1/sessions/"), visitor.get("/")]
    assert [answer.status_code for answer in answers] == [500, 500]
    assert answers[0].json()["id"] == answers[0][HEADER]
    assert answers[1][HEADER] in answers[1].content.decode()
    lines = [record.request_part for record in caplog.records if record.levelno >= logging.ERROR]
    assert lines == [f" [request {answer[HEADER]}]" for answer in answers]


def test_the_console_writes_the_id_at_the_end_of_a_line() -> None:
    shape = settings.LOGGING["formatters"]["line"]["format"]
    record = logging.LogRecord("one", logging.INFO, "file", 1, "it failed", (), None)
    with within_request(RequestFacts("0123456789ab", ADDRESS)):
        assert AddRequestId().filter(record)
    assert logging.Formatter(shape).format(record).endswith("INFO one: it failed [request 0123456789ab]")
    assert settings.LOGGING["handlers"]["console"]["filters"] == ["request"]


def test_a_line_of_json_has_what_is_known(
    cast: Cast, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BACKENDAI_LOG_FORMAT", "json")
    shape = environment.log_shape("BACKENDAI_LOG_FORMAT", "%(message)s")
    lines = import_string(shape["()"])()
    session = make_session(cast.alice)
    client.force_login(cast.alice)
    client.raise_request_exception = False
    with (
        mock.patch("backendai.domain.compute.querysets.SessionQuerySet.visible_to", side_effect=RuntimeError("broken")),
        caplog.filtering(AddRequestId()),
    ):
        answer = client.get(f"/sessions/{session.pk}/")
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    line = lines.format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["request_id"]) == ("ERROR", "django.request", answer[HEADER])
    assert (told["user_id"], told["session_id"]) == (str(cast.alice.pk), str(session.pk))
    assert "RuntimeError: broken" in told["exception"] and datetime.fromisoformat(told["time"]).tzinfo


@pytest.mark.parametrize("kind", ["file", "syslog"])
def test_audit_entries_are_copied_when_they_are_written(
    cast: Cast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    kind: str,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"syslog:127.0.0.1:{listener.getsockname()[1]}" if kind == "syslog" else str(tmp_path / "audit.log")
        monkeypatch.setenv("BACKENDAI_AUDIT_LOG", address)
        logger, shape = (
            {"handlers": ["audit"], "level": "INFO", "propagate": False},
            settings.LOGGING["formatters"]["audit"],
        )
        handlers = {"audit": environment.audit_handler("BACKENDAI_AUDIT_LOG")}
        told = {"formatters": {"audit": shape}, "handlers": handlers, "loggers": {"backendai.audit": logger}}
        dictConfig({"version": 1, "disable_existing_loggers": False, **told})
        settings.COPIES_AUDIT = True
        with django_capture_on_commit_callbacks(execute=True):
            audit(cast.alice.pk, "some.action", "thing", ["1"], amount=3)
        line = listener.recv(4096).decode() if kind == "syslog" else (tmp_path / "audit.log").read_text()
    content = json.loads(line.partition("backendai-audit: ")[2].rstrip("\0"))
    assert (content["actor"], content["action"], content["target_id"]) == (str(cast.alice.pk), "some.action", "1")
    assert content["details"] == {"amount": 3}


@pytest.mark.parametrize("told", ["audit.log", "syslog:", "syslog:host", "syslog:host:port"])
def test_a_wrong_place_for_copies_is_refused(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("BACKENDAI_AUDIT_LOG", told)
    with pytest.raises(SystemExit, match="BACKENDAI_AUDIT_LOG"):
        environment.audit_handler("BACKENDAI_AUDIT_LOG")


def test_an_asynchronous_view_has_one(client: Client) -> None:
    answer = client.post("/node/v1/sync", "{}", "application/json")
    assert answer.status_code == 401 and len(answer[HEADER]) == 12
