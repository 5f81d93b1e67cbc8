"""A request can be followed: the answer's head, the page of an error, the log and the audit trail have one id."""

from __future__ import annotations

import logging
from unittest import mock

import pytest
from django.conf import settings
from django.test import Client

from backendai.domain.accounts.services import create_token
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.request_facts import RequestFacts, client_address, request_id, within_request
from backendai.domain.activity.services import audit
from backendai.portal.http.request_ids import HEADER, AddRequestId
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


def test_an_asynchronous_view_has_one(client: Client) -> None:
    answer = client.post("/node/v1/sync", "{}", "application/json")
    assert answer.status_code == 401 and len(answer[HEADER]) == 12
