"""In which language a page speaks, and who remembers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import User
from backendai.domain.accounts.scopes import WORDS
from backendai.domain.accounts.services.language import choose_language
from backendai.domain.activity.models import AuditEntry
from backendai.portal.web.frame.time_words import clock, relative
from tests.cast import Cast
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@pytest.fixture(autouse=True)
def in_english() -> Iterator[None]:
    """What a request activated stays so: leave nothing of it to the tests after."""
    with translation.override("en"):
        yield


KOREAN = {"HTTP_ACCEPT_LANGUAGE": "ko-KR,ko;q=0.9,en;q=0.5"}


def test_a_visitor_is_spoken_to_as_the_browser_asks_until_another_language_is_chosen(client: Client) -> None:
    login = reverse("web:login")
    plain, asked = client.get(login), client.get(login, **KOREAN)
    assert '<html lang="en">' in markup(plain)
    assert '<html lang="ko">' in markup(asked) and "로그인" in markup(asked)
    assert asked["Content-Language"] == "ko" and "Accept-Language" in asked["Vary"]
    assert '<html lang="en">' in markup(client.get(login, HTTP_ACCEPT_LANGUAGE="xx,de;q=0.8"))

    chosen = client.post(reverse("web:language"), {"language": "ko", "next": f"{login}?next=/dashboard/"})
    assert chosen["Location"] == f"{login}?next=/dashboard/"
    cookie = chosen.cookies[settings.LANGUAGE_COOKIE_NAME]
    assert (cookie.value, cookie["httponly"], cookie["samesite"]) == ("ko", True, "Lax")
    again = client.get(login)
    assert '<html lang="ko">' in markup(again) and "Cookie" in again["Vary"]


def test_what_a_token_may_do_is_said_in_the_language_of_the_page(cast: Cast, browse: Browse) -> None:
    page = markup(browse(cast.alice).get(reverse("web:tokens"), **KOREAN))
    said = re.findall(r'<span class="form-check-label">(.+?)</span>', page)
    assert len(said) == len(WORDS) - 1
    assert not any(re.search("[A-Za-z]", one.replace("SSH", "")) for one in said), said


def test_the_choice_goes_back_to_pages_of_ours_only_and_knows_its_languages(client: Client) -> None:
    where = reverse("web:language")
    for page in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", ""):
        assert client.post(where, {"language": "ko", "next": page})["Location"] == "/"
    changed = "http://testserver/sessions/new/?step=2"
    back = client.post(where, {"language": "ko", "next": "/sessions/new/"}, headers={"Referer": changed})
    assert back["Location"] == changed, "a script has put its state into the address since the page was made"
    assert not client.post(where, {"language": "xx", "next": "/"}).cookies
    assert client.get(where).status_code == 405


def test_a_person_keeps_the_language_in_every_browser(cast: Cast, browse: Browse) -> None:
    page = reverse("web:account")
    browse(cast.alice).post(reverse("web:language"), {"language": "ko", "next": page})
    cast.alice.refresh_from_db()
    assert cast.alice.language == "ko"
    entry = AuditEntry.objects.get(action="user.choose-language")
    assert (entry.actor, entry.details) == (cast.alice, {"language": "ko"})
    elsewhere = markup(browse(cast.alice).get(page, HTTP_ACCEPT_LANGUAGE="en"))
    assert '<html lang="ko">' in elsewhere
    assert '<button type="submit" name="language" value="ko" lang="ko" aria-pressed="true">한국어</button>' in elsewhere
    assert '<html lang="en">' in markup(browse(cast.bob).get(page)), "others are not asked"
    with pytest.raises(UserError) as refused:
        choose_language(cast.alice, "xx")
    assert refused.value.code == "no-language"
    choose_language(cast.alice, "ko")
    assert AuditEntry.objects.filter(action="user.choose-language").count() == 1, "nothing changed"


def test_rest_answers_heed_the_header_alone(cast: Cast, browse: Browse) -> None:
    choose_language(cast.alice, "ko")
    client = browse(cast.alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "ko"
    answer = client.get("/api/v1/me/")
    assert answer["Content-Language"] == "en"
    assert client.get("/api/v1/me/", **KOREAN)["Content-Language"] == "ko"


def test_times_are_told_in_the_language_of_the_page() -> None:
    now = timezone.now()
    moments = [now - timezone.timedelta(seconds=s) for s in (3, 300, 6800, -300, -6800, -7200, -97200, 90000)]
    with translation.override("en"):
        assert (
            ", ".join(relative(one, now) for one in moments)
            == "just now, 5 min ago, 1 h ago, in 5 min, in 1 h 53 min, in 2 h, in 1 d 3 h, 1 d ago"
        )
        assert [clock(s) for s in (5, 3725, 86400, 97200)] == ["0:00:05", "1:02:05", "1 d", "1 d 3 h"]
    with translation.override("ko"):
        assert (
            ", ".join(relative(one, now) for one in moments)
            == "방금, 5분 전, 1시간 전, 5분 후, 1시간 53분 후, 2시간 후, 1일 3시간 후, 1일 전"
        )
        assert clock(97200) == "1일 3시간"
