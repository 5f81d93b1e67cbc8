"""The page of a link is not lost while somebody first sets up a second factor."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cast import PASSWORD, Cast
from tests.web.test_second_factors import SECURITY, browser, is_in, set_up_app, sign_in

pytestmark = pytest.mark.django_db
MAIL_LINK = "/account/tokens/?from=mail&x=%2F"
OFFER = b"Continue to the page that you opened"


@pytest.fixture(autouse=True)
def everybody_needs_one(settings: Any) -> None:
    settings.REQUIRE_MFA = "all"


def test_a_link_is_offered_once_the_factor_is_there_and_forgotten_when_it_was_used(cast: Cast) -> None:
    client = sign_in()
    assert client.get(MAIL_LINK)["Location"] == SECURITY
    client.get("/notifications/bell/", HTTP_HX_REQUEST="true")
    client.get("/sessions/", HTTP_ACCEPT="application/json")
    client.get("/")
    client.post("/sessions/new/")
    assert OFFER not in client.get(SECURITY).content, "nothing else opens yet"
    set_up_app(client)
    link = b'href="/account/tokens/?from=mail&amp;x=%2F"'
    for path in (SECURITY, f"{SECURITY}codes/"):
        page = client.get(path).content
        assert link in page
        assert OFFER in page
    assert client.get(MAIL_LINK).status_code == 200
    assert OFFER not in client.get(SECURITY).content


def test_a_link_of_a_mail_leads_through_sign_in_and_set_up(cast: Cast) -> None:
    client = browser()
    step = client.get(MAIL_LINK)["Location"]
    assert step.startswith("/login/")
    answer = client.post(step, {"username": "alice@example.com", "password": PASSWORD})
    assert client.get(answer["Location"])["Location"] == SECURITY
    set_up_app(client)
    assert b"/account/tokens/?from=mail" in client.get(SECURITY).content


def test_nothing_is_offered_without_a_link_and_nothing_leads_elsewhere(cast: Cast) -> None:
    client = sign_in()
    client.get("/")
    client.get("/sessions/new/?name=" + "x" * 2000)
    set_up_app(client)
    assert OFFER not in client.get(SECURITY).content
    other = sign_in("bob@example.com")
    other.get("//evil.example/")
    set_up_app(other)
    assert b'href="//evil' not in other.get(SECURITY).content
    assert is_in(other)


def test_pages_of_the_set_up_ask_for_nothing_that_is_still_shut(cast: Cast) -> None:
    client = sign_in()
    for path in (SECURITY, f"{SECURITY}app/"):
        page = client.get(path).content.decode()
        assert not re.search(r'hx-get="|js/(events|bell|cards|announcements)\.', page), path
        assert 'href="/dashboard/"' not in page and 'href="/account/"' not in page
        assert 'action="/logout/"' in page
    set_up_app(client)
    page = client.get(SECURITY).content.decode()
    assert 'hx-get="/notifications/' in page and 'href="/dashboard/"' in page and "js/events." in page
