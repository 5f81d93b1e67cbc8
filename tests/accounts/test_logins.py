"""Guessing passwords."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import signing
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import LoginCount
from backendai.domain.accounts.sign_in.logins import (
    FREE_TRIES,
    FREE_TRIES_EVERYWHERE,
    FREE_TRIES_OF_ADDRESS,
    begin_login,
    end_login,
)
from tests.cast import PASSWORD, Cast

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def sign_in(page: str, email: str, password: str, address: str = HERE) -> bool:
    client = Client(REMOTE_ADDR=address)
    client.post(page, {"username": email, "password": password})
    return "_auth_user_id" in client.session


def test_it_takes_not_even_the_right_password_after_too_many_wrong_ones(cast: Cast) -> None:
    for _ in range(FREE_TRIES):
        assert not sign_in("/login/", "dana@example.com", "wrong")
    assert not sign_in("/login/", "Dana@example.com ", PASSWORD)
    assert sign_in("/login/", "dana@example.com", PASSWORD, THERE)
    assert sign_in("/login/", "alice@example.com", PASSWORD)


def test_the_counters_outlive_the_cache(cast: Cast) -> None:
    for _ in range(FREE_TRIES):
        sign_in("/login/", "dana@example.com", "wrong")
    cache.clear()
    assert not sign_in("/login/", "dana@example.com", PASSWORD)


def test_it_says_how_long_to_wait_for_accounts_that_exist_and_those_that_do_not(cast: Cast) -> None:
    said = []
    for email in ("alice@example.com", "nobody@example.com"):
        for _ in range(FREE_TRIES):
            sign_in("/login/", email, "wrong")
        answer = Client(REMOTE_ADDR=HERE).post("/login/", {"username": email, "password": "wrong"})
        said.append("Too many attempts. Try again in " in answer.content.decode())
    assert said == [True, True]


def test_it_waits_longer_each_time_and_forgets_after_an_hour_of_quiet(now: datetime) -> None:
    waits = []
    for _ in range(FREE_TRIES + 6):
        while wait := begin_login("a@example.com", HERE, now=now):
            waits.append(wait.total_seconds())
            now += wait
    assert waits == [30, 60, 120, 240, 480, 900]
    now += timedelta(hours=1, seconds=1)
    assert [begin_login("a@example.com", HERE, now=now) for _ in range(FREE_TRIES)] == [None] * FREE_TRIES
    assert LoginCount.objects.count() == 3


def test_it_stops_one_address_that_tries_many_accounts(now: datetime) -> None:
    for number in range(FREE_TRIES_OF_ADDRESS):
        assert begin_login(f"{number}@example.com", HERE, now=now) is None
    assert begin_login("fresh@example.com", HERE, now=now) is not None
    assert begin_login("fresh@example.com", THERE, now=now) is None


def test_it_does_not_hold_successes_against_an_address(now: datetime) -> None:
    for number in range(FREE_TRIES_OF_ADDRESS * 2):
        assert begin_login(f"{number}@example.com", HERE, now=now) is None
        end_login(f"{number}@example.com", HERE)


def test_it_stops_guesses_at_one_account_from_many_addresses_but_not_in_known_browsers(cast: Cast) -> None:
    hers, guest = Client(REMOTE_ADDR=HERE), Client(REMOTE_ADDR=THERE)
    for client, email in ((hers, "dana@example.com"), (guest, "alice@example.com")):
        client.post("/login/", {"username": email, "password": PASSWORD})
        assert "_auth_user_id" in client.session
        client.post("/logout/")
    for number in range(FREE_TRIES_EVERYWHERE):
        assert not sign_in("/login/", "dana@example.com", "wrong", f"198.51.100.{number}")
    assert not sign_in("/login/", "dana@example.com", PASSWORD, "198.51.100.250")
    guest.post("/login/", {"username": "dana@example.com", "password": PASSWORD})
    assert "_auth_user_id" not in guest.session, "the browser of another account is not a known one"
    hers.post("/login/", {"username": "Dana@example.com", "password": PASSWORD})
    assert "_auth_user_id" in hers.session
    assert sign_in("/login/", "alice@example.com", PASSWORD, "198.51.100.250")


def test_a_forged_mark_makes_no_browser_known(cast: Cast) -> None:
    for number in range(FREE_TRIES_EVERYWHERE):
        sign_in("/login/", "dana@example.com", "wrong", f"198.51.100.{number}")
    client = Client(REMOTE_ADDR=HERE)
    client.cookies["known"] = signing.dumps(["dana@example.com"], salt="known browser", key="another key")
    client.post("/login/", {"username": "dana@example.com", "password": PASSWORD})
    assert "_auth_user_id" not in client.session


def test_wrong_codes_of_one_account_are_counted_over_all_addresses(cast: Cast, now: datetime) -> None:
    for number in range(FREE_TRIES_EVERYWHERE):
        assert begin_login("second factor of x", f"198.51.100.{number}", now=now) is None
    assert begin_login("second factor of x", HERE, now=now) == timedelta(seconds=30)
    assert begin_login("second factor of x", HERE, now=now, everywhere=False) is None


def test_it_counts_a_whole_ipv6_network_as_one_address(now: datetime) -> None:
    for number in range(FREE_TRIES):
        begin_login("a@example.com", f"2001:db8::{number}", now=now)
    assert begin_login("a@example.com", "2001:db8::ffff", now=now) is not None
    assert begin_login("a@example.com", "2001:db8:0:1::1", now=now) is None


def test_it_tells_ipv4_addresses_apart_on_a_socket_for_both(now: datetime) -> None:
    for _ in range(FREE_TRIES):
        begin_login("a@example.com", HERE, now=now)
    assert begin_login("a@example.com", f"::ffff:{HERE}", now=now) is not None
    assert begin_login("a@example.com", f"::ffff:{THERE}", now=now) is None


def test_it_keeps_nothing_that_was_typed(cast: Cast) -> None:
    sign_in("/login/", "my-password-by-mistake", "wrong")
    assert not any("password" in str(row) for row in LoginCount.objects.values_list())


def test_a_login_outlives_a_new_secret_key_but_no_new_password(cast: Cast, settings: Any) -> None:
    cast.dana.credentials_version = 2
    before = cast.dana.get_session_auth_hash()
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "k" * 50
    assert before != cast.dana.get_session_auth_hash()
    assert list(cast.dana.get_session_auth_fallback_hash()) == [before]
    cast.dana.credentials_version = 3
    assert before not in cast.dana.get_session_auth_fallback_hash()
