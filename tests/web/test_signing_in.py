"""Signing in and out."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.cast import PASSWORD, Cast

pytestmark = pytest.mark.django_db


def test_it_signs_in_by_address_whatever_its_case_and_goes_where_one_wanted_to_go(cast: Cast) -> None:
    client = Client()
    wanted = reverse("web:account")
    asked = client.get(wanted)
    assert asked.status_code == 302
    form = {"username": "ALICE@Example.com", "password": PASSWORD, "next": wanted}
    answer = client.post(asked["Location"], form)
    assert answer.status_code == 302
    assert answer["Location"] == wanted


def test_it_refuses_a_wrong_password_without_saying_which_part_was_wrong(cast: Cast) -> None:
    wrong = Client().post(reverse("web:login"), {"username": "alice@example.com", "password": "guess"})
    unknown = Client().post(reverse("web:login"), {"username": "nobody@example.com", "password": "guess"})
    for answer in (wrong, unknown):
        assert answer.status_code == 200
        assert b"do not belong together" in answer.content


def test_it_does_not_redirect_to_another_site_after_signing_in(cast: Cast) -> None:
    form = {"username": "alice@example.com", "password": PASSWORD, "next": "https://evil.example/"}
    assert Client().post(reverse("web:login"), form)["Location"] == reverse("web:sessions")


def test_it_signs_out_only_by_post(cast: Cast, browse) -> None:  # type: ignore[no-untyped-def]
    client = browse(cast.alice)
    assert client.get(reverse("web:logout")).status_code == 405
    client.post(reverse("web:logout"))
    assert client.get(reverse("web:sessions")).status_code == 302


@pytest.mark.parametrize("name", ["sessions", "launch", "resources_panel", "agents", "account"])
def test_it_asks_strangers_to_sign_in_on_every_page(db: None, name: str) -> None:
    answer = Client().get(reverse(f"web:{name}"))
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("web:login"))


def test_it_sends_a_policy_that_allows_no_inline_script(db: None) -> None:
    answer = Client().get(reverse("web:login"))
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    page = answer.content.decode()
    assert "<style" not in page
    assert " style=" not in page
    assert " onclick=" not in page
