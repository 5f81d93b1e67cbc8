"""Codes, passkeys and recovery codes: setting them up, signing in with them, losing them."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import Login, User
from backendai.domain.accounts.services import create_token
from backendai.domain.accounts.sign_in.logins import FREE_TRIES
from backendai.domain.accounts.sign_in.second_factors import reset_factors
from backendai.domain.activity.models import AuditEntry
from tests.accounts.soft_key import SoftKey
from tests.cast import PASSWORD, Cast

pytestmark = pytest.mark.django_db

SECURITY, CODE, PASSKEY = "/account/security/", "/login/code/", "/login/passkey/"
HOST = "portal.localhost:8080"
ORIGIN = f"http://{HOST}"


def browser(**over: Any) -> Client:
    return Client(HTTP_HOST=HOST, **over)


def sign_in(email: str = "alice@example.com", client: Client | None = None, password: str = PASSWORD) -> Client:
    client = client or browser()
    client.post("/login/", {"username": email, "password": password})
    return client


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def code_of(secret: str, ahead: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + ahead))


def set_up_app(client: Client) -> str:
    page = client.get(f"{SECURITY}app/")
    secret = str(page.context["form"].secret)
    assert secret in page.content.decode()
    answer = client.post(f"{SECURITY}app/", {"code": code_of(secret)})
    assert (answer.status_code, answer["Location"]) == (302, f"{SECURITY}codes/")
    return secret


def options_in(client: Client, path: str) -> Any:
    text = client.get(path).content.decode()
    found = re.search(r'<script id="passkey-options" type="application/json">(.*?)</script>', text)
    assert found
    return json.loads(found[1])


def add_passkey(client: Client, key: SoftKey, **over: Any) -> Any:
    credential = key.create(options_in(client, f"{SECURITY}passkeys/new/"))
    return client.post(f"{SECURITY}passkeys/new/", {"name": "laptop", "credential": credential, **over})


def passkey_login(key: SoftKey) -> Client:
    client = browser()
    options = client.get(PASSKEY, HTTP_ACCEPT="application/json").json()["request_options"]
    client.post(PASSKEY, {"credential": key.get(options)})
    return client


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let signing in be too long ago to count as a proof."""
    monkeypatch.setattr("backendai.domain.accounts.sign_in.adapters.FRESH_SECONDS", -1)


def test_an_app_asks_for_its_code_at_every_sign_in_and_takes_each_code_once(cast: Cast) -> None:
    first = sign_in()
    secret = set_up_app(first)
    assert secret not in str(Authenticator.objects.values_list("data")), "sealed in the database"
    second = sign_in()
    assert not is_in(second)
    assert second.get("/login/")["Location"] == CODE
    assert b"not a valid code" in second.post(CODE, {"code": "000000"}).content
    good = code_of(secret, ahead=1)
    assert second.post(CODE, {"code": f"{good[:3]} {good[3:]}"})["Location"] == "/"
    assert is_in(second)
    assert Login.objects.order_by("id").values_list("method", flat=True).last() == "password+app"
    cache.clear()  # no process's memory is needed for this
    third = sign_in()
    for used in (good, code_of(secret)):
        third.post(CODE, {"code": used})
        assert not is_in(third)


def test_the_code_that_sets_an_app_up_signs_nobody_in(cast: Cast) -> None:
    secret = set_up_app(sign_in())
    second = sign_in()
    second.post(CODE, {"code": code_of(secret)})
    assert not is_in(second)


def test_a_recovery_code_lets_in_once(cast: Cast) -> None:
    first = sign_in()
    set_up_app(first)
    page = first.get(f"{SECURITY}codes/").content.decode()
    codes = re.findall(r"<li>(\d{8})</li>", page)
    assert len(set(codes)) == 10
    assert first.get(f"{SECURITY}codes/file/").content.decode().split() == codes
    for expected in (True, False):
        client = sign_in()
        client.post(CODE, {"code": codes[0]})
        assert is_in(client) is expected
    assert b"9 left" in first.get(SECURITY).content


def test_codes_cannot_be_guessed_fast_nor_by_coming_back(cast: Cast) -> None:
    secret = set_up_app(sign_in())
    for _ in range(FREE_TRIES):
        sign_in().post(CODE, {"code": "123123"})
    client = sign_in()
    assert b"Too many attempts" in client.post(CODE, {"code": code_of(secret, 1)}).content
    assert not is_in(client)
    failures = AuditEntry.objects.filter(action="user.sign-in-failed", details__step="totp")
    assert failures.count() == FREE_TRIES


def test_a_passkey_signs_in_alone_and_as_a_second_factor(cast: Cast) -> None:
    first, key = sign_in(), SoftKey(ORIGIN)
    assert add_passkey(first, key, passwordless="on").status_code == 302
    alone = passkey_login(key)
    assert is_in(alone)
    assert Login.objects.order_by("id").values_list("method", flat=True).last() == "passkey"
    both = sign_in()
    assert not is_in(both)
    both.post(CODE, {"credential": key.get(options_in(both, CODE))})
    assert is_in(both)
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"user.add-factor", "user.sign-in"} <= actions


@pytest.mark.parametrize("wrong", ["origin", "key", "not verified", "not active"])
def test_a_passkey_that_is_not_right_lets_nobody_in(cast: Cast, wrong: str) -> None:
    key = SoftKey(ORIGIN)
    add_passkey(sign_in(), key)
    if wrong == "origin":
        key.origin = "http://apps.localhost:8081"
    elif wrong == "key":
        key.key = SoftKey(ORIGIN).key
    elif wrong == "not verified":
        key.flags = 1
    elif wrong == "not active":
        User.objects.filter(pk=cast.alice.pk).update(is_active=False)
    assert not is_in(passkey_login(key))


def test_an_answer_that_makes_no_sense_is_refused_on_every_page_that_takes_one(cast: Cast) -> None:
    first, key = sign_in(), SoftKey(ORIGIN)
    add_passkey(first, key)
    stranger, half = browser(), sign_in()
    good = json.loads(key.get(stranger.get(PASSKEY, HTTP_ACCEPT="application/json").json()["request_options"]))
    made = json.loads(key.create(options_in(first, f"{SECURITY}passkeys/new/")))
    nonsense = ["", "{}", "[]", "null", '{"id": 1}', '{"response": {"userHandle": "AA"}}']
    for whole in (good, made):
        for name in whole["response"]:
            for value in ("AA", 1, None):
                nonsense.append(json.dumps(whole | {"response": whole["response"] | {name: value}}))
    for text in nonsense:
        for client, path in ((stranger, PASSKEY), (half, CODE), (first, f"{SECURITY}passkeys/new/")):
            assert client.post(path, {"credential": text, "name": "x"}).status_code in (200, 302), (path, text)
        stranger.get(PASSKEY, HTTP_ACCEPT="application/json")
    assert (is_in(stranger), is_in(half), Authenticator.objects.filter(type="webauthn").count()) == (False, False, 1)


def test_an_answer_of_a_passkey_is_good_once(cast: Cast) -> None:
    key = SoftKey(ORIGIN)
    add_passkey(sign_in(), key)
    client = browser()
    answer = key.get(client.get(PASSKEY, HTTP_ACCEPT="application/json").json()["request_options"])
    client.post(PASSKEY, {"credential": answer})
    assert is_in(client)
    again = browser()
    again.get(PASSKEY, HTTP_ACCEPT="application/json")
    again.post(PASSKEY, {"credential": answer})
    assert not is_in(again)


def test_what_strangers_are_asked_is_kept_for_minutes_and_a_login_for_as_long_as_any(cast: Cast, settings: Any) -> None:
    key, client = SoftKey(ORIGIN), browser()
    add_passkey(sign_in(), key)
    options = client.get(PASSKEY, HTTP_ACCEPT="application/json").json()["request_options"]
    assert client.session.get_expiry_age() <= 900
    stale = Session.objects.create(session_key="stale", session_data="", expire_date=timezone.now())
    client.post(PASSKEY, {"credential": key.get(options)})
    assert is_in(client)
    assert client.session.get_expiry_age() == settings.SESSION_COOKIE_AGE
    assert not Session.objects.filter(pk=stale.pk).exists(), "a sign-in clears up"


def test_passkeys_are_offered_where_browsers_give_them_only(cast: Cast) -> None:
    for host, offered in ((HOST, True), ("localhost", True), ("127.0.0.1:8080", False), ("portal.example", False)):
        page = Client(HTTP_HOST=host).get("/login/").content.decode()
        assert ("Use a passkey" in page) is offered, host


def test_changing_factors_asks_again_who_one_is(cast: Cast, tomorrow: None) -> None:
    client = sign_in()
    asked = client.get(f"{SECURITY}app/")
    assert (asked.status_code, asked["Location"]) == (302, f"{SECURITY}confirm/?next=%2Faccount%2Fsecurity%2Fapp%2F")
    for path in ("passkeys/new/", "codes/new/"):
        assert client.get(SECURITY + path)["Location"].startswith(f"{SECURITY}confirm/")
    assert b"not your password" in client.post(asked["Location"], {"password": "wrong"}).content
    assert AuditEntry.objects.filter(action="user.sign-in-failed").count() == 1


def test_whoever_proves_it_again_goes_on_to_where_they_wanted_to_go(cast: Cast) -> None:
    client = browser()
    client.force_login(cast.alice)  # no proof is known of this login
    asked = client.get(f"{SECURITY}app/")["Location"]
    again = client.post(asked, {"password": PASSWORD, "next": f"{SECURITY}app/"})
    assert again["Location"] == f"{SECURITY}app/"
    set_up_app(client)


def test_factors_of_others_are_out_of_reach(cast: Cast) -> None:
    add_passkey(sign_in(), SoftKey(ORIGIN))
    row = Authenticator.objects.get(type="webauthn")
    bob = sign_in("bob@example.com")
    for path in (f"{SECURITY}passkeys/{row.pk}/", f"{SECURITY}passkeys/{row.pk}/remove/"):
        assert bob.get(path).status_code == bob.post(path, {"name": "mine"}).status_code == 404
    assert b"laptop" not in bob.get(SECURITY).content


def test_the_last_factor_goes_with_its_recovery_codes(cast: Cast) -> None:
    client = sign_in()
    set_up_app(client)
    client.post(f"{SECURITY}app/remove/")
    assert not Authenticator.objects.exists()
    assert is_in(sign_in())
    told = AuditEntry.objects.filter(action="user.remove-factor").values_list("details__factor", flat=True)
    assert set(told) == {"totp", "recovery_codes"}


@pytest.mark.parametrize(("setting", "who"), [("admins", {"dana"}), ("all", {"dana", "alice"}), ("none", set())])
def test_a_required_factor_is_all_that_one_can_set_up_first(
    cast: Cast, settings: Any, setting: str, who: set[str]
) -> None:
    settings.REQUIRE_MFA = setting
    for name in ("dana", "alice"):
        client = sign_in(f"{name}@example.com")
        held = name in who
        assert is_in(client) is not held
        assert (client.get("/")["Location"] == SECURITY) if held else (client.get("/").status_code == 200)
        assert client.get("/api/v1/me/").status_code == (403 if held else 200)
        if held:
            assert client.get("/api/v1/me/").json()["code"] == "second-factor-required"
            assert client.get("/notifications/bell/", HTTP_HX_REQUEST="true").status_code == 403
            assert b"You need a second factor here" in client.get(SECURITY).content
            set_up_app(client)
            assert is_in(client)
            assert b"Everybody in your role needs" in client.get(f"{SECURITY}app/remove/").content
            client.post(f"{SECURITY}app/remove/")
            assert Authenticator.objects.filter(type="totp", user__email=f"{name}@example.com").exists()


def test_a_required_factor_does_not_stop_scripts_nor_what_needs_nobody(cast: Cast, settings: Any) -> None:
    settings.REQUIRE_MFA = "all"
    _, token = create_token(cast.alice, "script")
    assert Client().get("/api/v1/me/", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert Client().get("/healthz").status_code == Client().get("/login/").status_code == 200


@pytest.mark.parametrize("header", ["Bearer x", "BackendAI x", "bearer bai_made-up", "BACKENDAI signMethod=x"])
def test_a_header_that_only_looks_like_a_key_opens_no_page(cast: Cast, settings: Any, header: str) -> None:
    settings.REQUIRE_MFA = "all"
    client = sign_in("dana@example.com")
    for path in ("/", "/dashboard/", "/account/tokens/", "/admin/", "/manage/"):
        answer = client.get(path, headers={"Authorization": header})
        assert (answer.status_code, answer.get("Location")) == (302, SECURITY), path
    assert client.get("/api/v1/me/", headers={"Authorization": header}).status_code == 401


def test_an_administrator_takes_lost_factors_away_and_the_logins_with_them(cast: Cast) -> None:
    client = sign_in()
    set_up_app(client)
    assert reset_factors(cast.dana.pk, cast.alice, now=timezone.now()) == 2
    assert reset_factors(cast.dana.pk, cast.alice, now=timezone.now()) == 0
    assert not is_in(client)
    assert is_in(sign_in())
    entry = AuditEntry.objects.get(action="user.reset-factors")
    assert (entry.actor, entry.details["factors"]) == (cast.dana, ["recovery_codes", "totp"])
