"""Programs on other computers get a token when somebody allows them (RFC 8628), and end it themselves."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.models import AccessToken, DeviceRequest, User
from backendai.domain.accounts.scopes import all_scopes
from backendai.domain.accounts.services import devices
from backendai.domain.accounts.services.devices import allow_request, refuse_request
from backendai.domain.accounts.sign_in.revocation import end_credentials, set_active
from backendai.domain.activity.models import AuditEntry
from backendai.portal.loops.repair.retention import delete_expired
from tests.api.callers import Caller
from tests.api.openapi import faults_of
from tests.cast import Cast

pytestmark = pytest.mark.django_db
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def post(path: str, body: dict[str, Any], *, form: bool = False, address: str = "192.0.2.7") -> Any:
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    content = urlencode(body) if form else json.dumps(body)
    return Client(REMOTE_ADDR=address).post(f"/api/v1/device/{path}", content, content_type=kind)


def ask(**fields: str) -> dict[str, Any]:
    answer = post("", {"client_name": "bai on laptop"} | fields)
    assert answer.status_code == 200, answer.content
    assert answer["Cache-Control"] == "no-store"
    assert faults_of(answer.json(), "DeviceCodeBody") == []
    return dict(answer.json())


def fetch(asked: dict[str, Any], *, form: bool = False) -> Any:
    return post("token/", {"device_code": asked["device_code"], "grant_type": GRANT}, form=form)


def error_of(answer: Any) -> str:
    body = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), body
    assert (faults_of(body, "Problem"), body["code"]) == ([], body["error"].replace("_", "-"))
    return str(body["error"])


def row_of(asked: dict[str, Any]) -> DeviceRequest:
    return DeviceRequest.objects.get(user_code=asked["user_code"])


def allow(user: User, asked: dict[str, Any], days: int = 7) -> None:
    allow_request(user, row_of(asked), days, now=timezone.now())


def later(asked: dict[str, Any], **times: timedelta) -> None:
    """Move the times of a request back."""
    row = row_of(asked)
    DeviceRequest.objects.filter(pk=row.pk).update(**{name: getattr(row, name) - by for name, by in times.items()})


@pytest.mark.parametrize("form", [False, True])
def test_a_program_gets_one_token_of_the_person_who_allows_it(cast: Cast, form: bool) -> None:
    asked = ask(scope="sessions")
    assert (asked["expires_in"], asked["interval"]) == (600, 5)
    assert asked["verification_uri"] == "http://testserver/device/"
    assert asked["verification_uri_complete"] == f"http://testserver/device/?code={asked['user_code']}"
    assert error_of(fetch(asked, form=form)) == "authorization_pending"
    allow(cast.alice, asked)
    answer = fetch(asked, form=form)
    given = answer.json()
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")
    assert faults_of(given, "DeviceTokenBody") == []
    assert (given["token_type"], given["scope"], given["user"]) == ("Bearer", "read sessions", cast.alice.email)
    bearer = {"Authorization": f"Bearer {given['access_token']}"}
    assert Client().get("/api/v1/me/", headers=bearer).json()["email"] == cast.alice.email
    token = AccessToken.objects.get()
    assert (token.name, token.scopes, token.user) == ("bai on laptop", ["read", "sessions"], cast.alice)
    assert timedelta(days=6) < token.expires_at - timezone.now() <= timedelta(days=7)
    assert error_of(fetch(asked, form=form)) == "invalid_grant"
    assert AccessToken.objects.count() == 1
    assert list(AuditEntry.objects.filter(actor=cast.alice).values_list("action", flat=True).order_by("pk")) == [
        "device.allow", "token.create",
    ]  # fmt: skip


def test_neither_the_code_nor_the_token_is_stored(cast: Cast) -> None:
    asked = ask()
    assert asked["device_code"] not in str(DeviceRequest.objects.values())
    allow(cast.alice, asked)
    text = fetch(asked).json()["access_token"]
    assert AccessToken.objects.get().scopes == all_scopes()
    rows = [*AccessToken.objects.values(), *DeviceRequest.objects.values(), *AuditEntry.objects.values()]
    assert text not in str(rows)


def test_a_program_that_asks_too_fast_is_told_to_slow_down(cast: Cast) -> None:
    asked = ask()
    assert error_of(fetch(asked)) == "authorization_pending"
    assert error_of(fetch(asked)) == "slow_down"
    later(asked, asked_at=timedelta(seconds=5))
    assert error_of(fetch(asked)) == "authorization_pending"


def test_a_refused_and_an_outdated_request_get_nothing_and_are_deleted_in_the_end(cast: Cast) -> None:
    refused, forgotten = ask(), ask()
    refuse_request(cast.alice, row_of(refused), now=timezone.now())
    assert error_of(fetch(refused)) == error_of(fetch(refused)) == "access_denied"
    assert AuditEntry.objects.get(action="device.refuse").details["client"] == "bai on laptop"
    later(forgotten, expires_at=timedelta(minutes=10))
    assert error_of(fetch(forgotten)) == "expired_token"
    delete_expired(timezone.now())
    assert DeviceRequest.objects.count() == 2
    delete_expired(timezone.now() + timedelta(minutes=20, seconds=1))
    assert DeviceRequest.objects.count() == 0
    assert error_of(fetch(forgotten)) == "invalid_grant"


def test_a_person_who_left_or_got_another_role_meanwhile_gives_no_token(cast: Cast) -> None:
    of_alice, of_bob, of_charlie = ask(), ask(), ask()
    for user, asked in ((cast.alice, of_alice), (cast.bob, of_bob), (cast.charlie, of_charlie)):
        allow(user, asked)
    set_active(cast.dana.pk, cast.alice, False, now=timezone.now())
    set_active(cast.dana.pk, cast.alice, True, now=timezone.now())
    end_credentials(cast.bob, now=timezone.now())
    User.objects.filter(pk=cast.charlie.pk).update(is_active=False)
    assert error_of(fetch(of_alice)) == error_of(fetch(of_bob)) == "invalid_grant"
    assert error_of(fetch(of_charlie)) == "access_denied"
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "client_name"),
        ({"client_name": " "}, "client_name"),
        ({"client_name": "x" * 101}, "client_name"),
        ({"client_name": "a\nb"}, "client_name"),
        ({"client_name": "bai", "scope": "everything"}, "scope"),
        ({"client_name": "bai", "user": "alice"}, "user"),
    ],
)
def test_a_request_that_says_something_wrong_is_told_where(cast: Cast, body: dict[str, Any], field: str) -> None:
    answer = post("", body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert not DeviceRequest.objects.exists()


def test_open_requests_are_bounded_for_a_network_and_in_all(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MOST_OF_ADDRESS", 2)
    monkeypatch.setattr(devices, "MOST_OPEN", 3)
    body = {"client_name": "bai"}
    statuses = [post("", body, address=f"2001:db8::{number}").status_code for number in range(3)]
    assert statuses == [200, 200, 429], "one network of IPv6 is one place"
    assert [post("", body, address=f"192.0.2.{number}").status_code for number in range(2)] == [200, 429]
    DeviceRequest.objects.update(expires_at=timezone.now())
    assert post("", body).status_code == 200


def test_a_token_ends_itself_whatever_its_scopes(cast: Cast) -> None:
    asked = ask(scope="read")
    allow(cast.alice, asked)
    other = Caller(cast.alice)
    bearer = {"Authorization": f"Bearer {fetch(asked).json()['access_token']}"}
    assert Client().delete("/api/v1/me/token/", headers=bearer).status_code == 204
    assert Client().get("/api/v1/me/", headers=bearer).status_code == 401
    assert other.get("/api/v1/me/").status_code == 200
    assert AuditEntry.objects.get(action="token.revoke").actor == cast.alice
    browser = Client()
    browser.force_login(cast.alice)
    assert browser.delete("/api/v1/me/token/").json()["code"] == "no-token"


def test_an_answer_that_was_under_way_when_credentials_ended_is_refused(cast: Cast) -> None:
    asked, stale = ask(), User.objects.get(pk=cast.alice.pk)
    end_credentials(cast.alice, now=timezone.now())
    with pytest.raises(Conflict):
        allow_request(stale, row_of(asked), 7, now=timezone.now())
