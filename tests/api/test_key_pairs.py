"""Key pairs over REST, signed requests, and what tokens of less than all scopes may do."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import AccessToken, KeyPair
from backendai.domain.accounts.services import create_token
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.sign_in.signatures import Signed, sign
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_group, make_image

pytestmark = pytest.mark.django_db
PAIRS = "/api/v1/keypairs/"


def signed(pair: KeyPair, secret: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
    content = b"" if body is None else json.dumps(body).encode()
    kind = "application/json" if content else ""
    date = datetime.now(UTC).isoformat()
    mark = sign(secret, Signed(method, path, "testserver", date, kind, "", content))
    told = {"Date": date, "Authorization": f"BackendAI signMethod=HMAC-SHA256, credential={pair.access_key}:{mark}"}
    return Client().generic(method, path, content, content_type=kind, headers={"Host": "testserver"} | told | headers)


def test_it_acts_for_whoever_signs_and_counts_sessions_for_their_key_pair(cast: Cast) -> None:
    make_group()
    make_image()
    pair, secret = create_key_pair(cast.alice, "laptop")
    assert signed(pair, secret, "GET", "/api/v1/me/").json()["email"] == cast.alice.email
    made = signed(pair, secret, "POST", f"{SESSIONS}?from=script", LAUNCH)
    assert made.status_code == 201, made.content
    assert ComputeSession.objects.get().access_key == pair.access_key
    found = signed(pair, secret, "GET", f"{SESSIONS}?name=train-1&page_size=5")
    assert [row["name"] for row in found.json()["results"]] == ["train-1"]
    assert Caller(cast.alice).post(SESSIONS, LAUNCH | {"name": "by-token"}).status_code == 201
    main = cast.alice.key_pairs.order_by("created_at").first()
    assert ComputeSession.objects.get(name="by-token").access_key == main.access_key
    refused = Caller(cast.alice).delete(f"{PAIRS}{pair.access_key}/")
    assert (refused.status_code, refused.json()["code"], refused.json()["data"]) == (
        409, "key-pair-in-use", {"sessions": 1},
    )  # fmt: skip


def test_it_answers_a_bad_signature_with_a_problem_and_401(cast: Cast) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    answer = signed(pair, "guessed", "GET", SESSIONS)
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid-signature")
    assert answer["WWW-Authenticate"]
    late = signed(pair, secret, "GET", SESSIONS, **{"X-BackendAI-Date": "2020-01-01T00:00:00Z"})
    assert (late.status_code, late.json()["code"]) == (401, "signature-expired")
    browser = Client()
    browser.force_login(cast.alice)
    beside = browser.get(SESSIONS, headers={"Authorization": f"BackendAI {pair.access_key}"})
    assert beside.status_code == 401, "a login beside it does not make it good"


def test_it_says_a_secret_once_and_changes_ones_own_pairs_only(cast: Cast) -> None:
    alice, bob = Caller(cast.alice), Caller(cast.bob)
    made = alice.post(PAIRS, {"name": "laptop"})
    assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
    key, secret = made.json()["access_key"], made.json()["secret_key"]
    assert secret not in alice.get(PAIRS).content.decode()
    assert [row["has_secret"] for row in alice.get(PAIRS).json()["results"]] == [True, False]
    assert bob.post(f"{PAIRS}{key}/rotate/").status_code == 404
    turned = alice.post(f"{PAIRS}{key}/rotate/").json()
    assert turned["secret_key"] != secret
    assert not any(secret in str(entry.details) for entry in AuditEntry.objects.all())
    change = _patch(alice, key, {"name": "desk", "is_main": True})
    assert (change["name"], change["is_main"]) == ("desk", True)
    for refused in (_patch(alice, key, {"is_active": False}), alice.delete(f"{PAIRS}{key}/").json()):
        assert refused["code"] == "main-key-pair"
    other = alice.post(PAIRS, {"name": "other"}).json()["access_key"]
    assert _patch(alice, other, {"is_main": True})["is_main"]
    assert _patch(alice, key, {"is_active": False})["is_active"] is False
    assert _patch(alice, key, {"is_main": True})["code"] == "key-pair-inactive"
    assert alice.delete(f"{PAIRS}{key}/").status_code == 204
    assert [alice.post(PAIRS, {"name": f"k{n}"}).status_code for n in range(9)] == [201] * 8 + [409]


def test_a_token_makes_no_token_that_can_do_more_or_lasts_longer(cast: Cast) -> None:
    soon = timezone.now() + timedelta(hours=1)
    _, text = create_token(cast.alice, "narrow", scopes=["account"], expires_at=soon)
    script = Client(headers={"Authorization": f"Bearer {text}"})

    def make(body: dict[str, Any]) -> Any:
        return script.post("/api/v1/tokens/", json.dumps({"name": "child"} | body), content_type="application/json")

    refused = make({"scopes": ["sessions"]})
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (400, "token-scope", "scopes")
    assert make({"scopes": ["everything"]}).json()["code"] == "no-scope"
    child = make({}).json()
    assert child["scopes"] == ["read", "account"]
    assert AccessToken.objects.get(pk=child["id"]).expires_at == soon
    for path in (PAIRS, f"{PAIRS}{cast.alice.key_pairs.get().pk}/rotate/"):
        answer = script.post(path, json.dumps({"name": "x"}), content_type="application/json")
        assert answer.json()["code"] == "token-scope", "a key pair has every scope"
    assert script.post(SESSIONS, json.dumps(LAUNCH), content_type="application/json").status_code == 403


def test_the_example_in_the_documentation_works(cast: Cast, live_server: Any, monkeypatch: Any) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    text = (Path(__file__).resolve().parents[2] / "docs" / "rest.md").read_text()
    example = next(code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "hmac" in code)
    values = {"PORTAL": live_server.url, "ACCESS_KEY": pair.access_key, "SECRET_KEY": secret}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    said: dict[str, Any] = {}
    exec(compile(example, "rest.md", "exec"), said)
    assert urlsplit(live_server.url).port
    assert said["call"]("GET", "/api/v1/me/")["email"] == cast.alice.email
    assert said["call"]("POST", "/api/v1/tokens/", {"name": "by signature"})["name"] == "by signature"


def _patch(caller: Caller, key: str, body: dict[str, Any]) -> Any:
    client = Client(headers={"Authorization": f"Bearer {caller.token}"})
    return client.patch(f"{PAIRS}{key}/", json.dumps(body), content_type="application/json").json()
