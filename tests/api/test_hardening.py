"""Bodies, tokens and failures that should not get further than a clear answer."""

from __future__ import annotations

import json
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import PlatformError
from backendai.domain.accounts.models import AccessToken
from backendai.domain.compute.models import ComputeSession
from backendai.portal.api.frame.parsing import LARGEST_BODY
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_group, make_image

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"owner": ["bob@example.com"]}, "owner"),
        ({"privileged": True}, "privileged"),
        ({"\ud800": 1}, "\ud800"),
        ({"name": ["a"]}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"name": "ab\0cd"}, "name"),
        ({"name": "\ud800abc"}, "name"),
        ({"name": "../../etc"}, "name"),
        ({"type": "inference"}, "type"),
        ({"type": None}, "type"),
        ({"image": None}, "image"),
        ({"image": "nothing-like-it"}, "image"),
        ({"image": {"a": 1}}, "image"),
        ({"resources": "all"}, "resources"),
        ({"resources": {"cpu": True}}, "resources.cpu"),
        ({"resources": {"cpu": [1]}}, "resources.cpu"),
        ({"resources": {"cpu": "lots"}}, "resources.cpu"),
        ({"resources": {"cpu": 10**39}}, "resources.cpu"),
        ({"resources": {"cpu": "1e400"}}, "resources.cpu"),
        ({"resources": {"cpu": "1e999999"}}, "resources.cpu"),
        ({"resources": {"cpu": -1}}, "resources.cpu"),
        ({"resources": {"\ud800": 1}}, "resources"),
        ({"resources": {"a" * 65: 1}}, "resources"),
        ({"resource_group": "not-mine"}, "resource_group"),
        ({"project": "other"}, "project"),
        ({"preset": "gigantic"}, "preset"),
        ({"shm": "2g"}, "shm"),
        ({"shm": "64"}, "shm"),
        ({"resources": {"cpu": 1, "mem": 64}}, "resources.mem"),
        ({"shm": True}, "shm"),
        ({"environ": ["A=1"]}, "environ"),
        ({"environ": {"A": {"b": 1}}}, "environ.A"),
        ({"environ": {"A": "x\0y"}}, "environ.A"),
        ({"environ": {"LD PRELOAD": "x"}}, "environ"),
        ({"environ": {"LD_PRELOAD": "/home/work/mine.so"}}, "environ"),
        ({"environ": {"BACKENDAI_USER_EMAIL": "bob@example.com"}}, "environ"),
        ({"environ": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "environ"),
        ({"startup_command": "true"}, "startup_command"),
        ({"starts_at": "tomorrow"}, "starts_at"),
        ({"starts_at": "9999-12-31T23:59:59-12:00"}, "starts_at"),
        ({"cluster_size": 0}, "cluster_size"),
        ({"cluster_size": 10**400}, "cluster_size"),
        ({"cluster_size": "many"}, "cluster_size"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_it_refuses_a_wrong_field_by_name(alice: Caller, change: dict[str, Any], field: str) -> None:
    answer = alice.post(SESSIONS, LAUNCH | change)
    assert answer.status_code == 400, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["field"] == field
    assert problem["status"] == 400
    assert problem["code"] == problem["code"].lower().replace("_", "-")
    assert problem["detail"]
    assert not ComputeSession.objects.exists()


def test_it_says_what_is_missing(alice: Caller) -> None:
    problem = alice.post(SESSIONS, {"name": "x"}).json()
    assert (problem["field"], problem["errors"][0]["code"]) == ("image", "required")


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '"text"', "null", "NaN", "[" * 100_000, '{"cluster_size": ' + "9" * 5000 + "}"],
    ids=lambda body: body[:12],
)
def test_it_refuses_what_is_not_a_json_object(alice: Caller, body: str) -> None:
    answer = alice.post(SESSIONS, body)
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"


def test_it_refuses_a_body_that_is_too_large(alice: Caller) -> None:
    answer = alice.post(SESSIONS, json.dumps(LAUNCH | {"name": "x" * LARGEST_BODY}))
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")


@pytest.mark.parametrize(
    "body",
    [
        {f"k{number}": 1 for number in range(20_000)},
        LAUNCH | {"preopen_ports": ["x"] * 20_000},
        LAUNCH | {"environ": {f"K{number}": {} for number in range(20_000)}},
    ],
    ids=["fields", "items", "names"],
)
def test_a_body_of_wrong_items_takes_little_memory(alice: Caller, body: dict[str, Any]) -> None:
    text = json.dumps(body)
    tracemalloc.start()
    try:
        answer = alice.post(SESSIONS, text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status_code, peak < 16 * 2**20) == (400, True), peak


def test_it_takes_json_only(alice: Caller) -> None:
    answer = Client(headers={"Authorization": f"Bearer {alice.token}"}).post(SESSIONS, LAUNCH)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")


def test_it_refuses_an_endless_idempotency_key(alice: Caller) -> None:
    answer = alice.post(SESSIONS, LAUNCH, **{"Idempotency-Key": "k" * 129})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-key")


@pytest.mark.parametrize(
    "header", ["Bearer nonsense", "Bearer ", "bearer bai_nothing", "Bearer bai_" + "x" * 5000, "Bearer \xff\xfe"]
)
def test_it_answers_401_with_a_challenge_for_a_bad_token(cast: Cast, header: str) -> None:
    client = Client()
    client.force_login(cast.alice)
    answer = client.get(SESSIONS, headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert answer.json()["code"] == "invalid-token"


def test_it_answers_401_without_any_credential(cast: Cast) -> None:
    answer = Client().get(SESSIONS)
    assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated")


@pytest.mark.parametrize("change", ["expire", "revoke", "disable"])
def test_it_refuses_a_token_from_the_moment_it_ends(alice: Caller, change: str) -> None:
    assert alice.get(SESSIONS).status_code == 200
    if change == "expire":
        AccessToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif change == "revoke":
        AccessToken.objects.all().delete()
    else:
        alice.user.is_active = False
        alice.user.save()
    assert alice.get(SESSIONS).status_code == 401


def test_it_wants_a_csrf_token_beside_the_login_cookie(cast: Cast) -> None:
    make_image()
    make_group()
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice)
    answer = client.post(SESSIONS, json.dumps(LAUNCH), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "permission-denied")
    assert not ComputeSession.objects.exists()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError("password=hunter2"), 500, "internal-error"),
        (PlatformError("hunter2 is down"), 503, "platform-error"),
    ],
)
def test_it_shows_our_own_faults_by_id_only(
    alice: Caller, monkeypatch: Any, caplog: Any, error: Exception, status: int, code: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("backendai.portal.api.sessions.views.launch_session", fail)
    answer = alice.post(SESSIONS, LAUNCH)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "hunter2" not in answer.content.decode()
    assert answer.json()["id"] in caplog.text
    assert "hunter2" in caplog.text


def test_it_refuses_more_fields_than_a_request_has(alice: Caller) -> None:
    answer = alice.get(f"{SESSIONS}?{'status=a&' * 1001}")
    assert (answer.status_code, answer.json()["code"]) == (400, "too-many-fields")


def test_it_answers_with_a_problem_for_addresses_and_methods_that_do_not_exist(alice: Caller) -> None:
    for path in ("/api/v1/nothing/", "/api/v1/sessions/not-a-uuid/", "/api/v1/sessions"):
        answer = alice.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
        assert alice.post(path, LAUNCH).status_code == 404
    answer = alice.delete(SESSIONS)
    assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")


def test_it_gives_no_page_of_more_than_a_hundred(alice: Caller) -> None:
    for number in range(3):
        alice.post(SESSIONS, LAUNCH | {"name": f"train-{number}"})
    assert len(alice.get(SESSIONS, page_size=2).json()["results"]) == 2
    assert len(alice.get(SESSIONS, page_size=10**9).json()["results"]) == 3
