"""A refused agent is told so in a sentence, logged once by its name, and asks ever more rarely."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from backendai.portal.agents import refused as refused_nodes
from backendai.portal.loops.repair.reachability import door_answers

pytestmark = pytest.mark.django_db
WRONG: Any = {"authorization": "Node revoked", "node-name": "gpu-07"}


def test_the_log_names_it_once_and_django_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    refused_nodes._logged.clear()
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            answer = Client().post("/node/v1/sync", "{}", content_type="application/json", headers=WRONG)
            assert (answer.status_code, answer.json()["code"]) == (401, "unknown-node")
            assert "an administrator must renew it" in answer.json()["detail"]
            Client().post("/node/v1/broker", "{}", content_type="application/json", headers=WRONG)
    assert [record.message for record in caplog.records if record.name.startswith(("backendai", "django.request"))] == [
        "agent gpu-07 at 127.0.0.1 is refused: its credential is revoked or unknown"
    ]


def test_a_name_that_is_none_is_not_written_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    refused_nodes._logged.clear()
    headers = WRONG | {"node-name": "x\nforged line"}
    with caplog.at_level(logging.INFO):
        Client().post("/node/v1/sync", "{}", content_type="application/json", headers=headers)
    assert "forged" not in caplog.text and "(no name)" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_the_portals_own_question_is_no_agent(live_server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    refused_nodes._logged.clear()
    assert door_answers(live_server.url)
    assert "is refused" not in caplog.text
