"""Explanations and previews over REST: the words, the numbers, and whose they are."""

from __future__ import annotations

import pytest

from backendai.domain.compute.models import ComputeSession
from backendai.domain.planning import turns
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.factories import make_agent, make_image, make_running_session, make_session

pytestmark = pytest.mark.django_db
PREVIEW = "/api/v1/session-preview/"


def test_a_waiting_session_explains_itself_to_its_owner_only(cast):
    make_running_session(cast.bob, make_agent("node-1", cpu=4), resources={"cpu": 3, "mem": "512m"})
    session = make_session(cast.alice, resources={"cpu": 2, "mem": "512m"})
    path = f"{SESSIONS}{session.pk}/explain/"
    body = Caller(cast.alice).get(path).json()
    assert (body["verdict"], body["reason"]["code"], body["position"]) == ("waits", "insufficient-resources", 1)
    assert body["reason"]["details"]["shortages"] == [{"slot": "cpu", "wanted": "2", "free": "1"}]
    assert body["suggestions"][0]["resources"]["cpu"] == "1"
    assert [step["passed"] for step in body["steps"]][-1] is False
    assert Caller(cast.bob).get(path).status_code == 404


def test_a_running_session_says_that_it_is_placed(cast):
    session = make_running_session(cast.alice)
    body = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/explain/").json()
    assert (body["verdict"], body["suggestions"]) == ("placed", [])


def test_a_preview_takes_a_launch_and_launches_nothing(cast):
    make_agent("node-1")
    make_image()
    body = Caller(cast.alice).post(PREVIEW, LAUNCH).json()
    assert (body["verdict"], body["agents"], body["message"]) == ("starts-now", ["node-1"], "It starts now on node-1.")
    assert not ComputeSession.objects.exists()


def test_a_preview_refuses_what_a_launch_refuses(cast):
    make_agent()
    make_image()
    refused = Caller(cast.alice).post(PREVIEW, LAUNCH | {"resources": {"cpu": 1, "mem": "1m"}})
    assert (refused.status_code, refused.json()["field"]) == (400, "resources.mem")


def test_who_asks_too_often_at_once_is_told_to_come_back(cast, monkeypatch):
    session = make_session(cast.alice)
    monkeypatch.setitem(turns._waiting, cast.alice.pk, 1)
    for answer in (
        Caller(cast.alice).get(f"{SESSIONS}{session.pk}/explain/"),
        Caller(cast.alice).post(PREVIEW, LAUNCH),
    ):
        assert (answer.status_code, answer.json()["code"]) == (429, "busy")
