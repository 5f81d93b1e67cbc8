"""A link into the portal survives the sign-in, in whatever way one signs in."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.conf import settings
from django.test import Client

from backendai.domain.accounts.models import User
from tests.cast import PASSWORD, Cast
from tests.factories import make_session
from tests.web.test_second_factors import CODE, browser, code_of, set_up_app, sign_in

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LINK = "/sessions/new/?image=python&cpu=2&startup_command=a+%26%26+b&environ.name=A&environ.value=%23x%3D1&step=5"
RIGHT = {"username": "alice@example.com", "password": PASSWORD}


def entrance_to(client: Client, link: str) -> str:
    answer = client.get(link)
    assert answer.status_code == 302
    return answer["Location"]


def form_of(page: str) -> tuple[str, str]:
    """Return where the sign-in form of a page leads, and what it has as ``next``."""
    form = re.search(r'<form class="card card-body" method="post" action="([^"]*)".*?</form>', page, re.DOTALL)
    assert form is not None
    wanted = re.search(r'name="next" value="([^"]*)"', form[0])
    assert wanted is not None
    return unescape(form[1]), unescape(wanted[1])


def test_a_launch_link_survives_wrong_passwords_and_another_language(cast: Cast) -> None:
    client = Client()
    action, wanted = form_of(client.get(entrance_to(client, LINK)).content.decode())
    assert wanted == LINK
    refused = client.post(action, {"username": "alice@example.com", "password": "wrong", "next": wanted})
    page = refused.content.decode()
    action, wanted = form_of(page)
    assert wanted == LINK
    back = re.search(r'class="language-choice".*?name="next" value="([^"]*)"', page, re.DOTALL)
    assert back is not None
    chosen = client.post("/language/", {"language": "ko", "next": unescape(back[1])})
    action, wanted = form_of(client.get(chosen["Location"]).content.decode())
    client.cookies.pop(settings.LANGUAGE_COOKIE_NAME)
    assert client.post(action, RIGHT | {"next": wanted})["Location"] == LINK


def test_a_launch_link_survives_a_second_factor(cast: Cast) -> None:
    secret = set_up_app(sign_in())
    client = browser()
    action, wanted = form_of(client.get(entrance_to(client, LINK)).content.decode())
    asked = client.post(action, RIGHT | {"next": wanted})
    assert asked["Location"].startswith(CODE)
    client.get(asked["Location"])
    assert client.post(asked["Location"], {"code": code_of(secret, ahead=1)})["Location"] == LINK


def test_a_launch_link_survives_when_another_tab_has_signed_in_meanwhile(cast: Cast, browse: Browse) -> None:
    entrance = entrance_to(Client(), LINK)
    assert browse(cast.alice).get(entrance)["Location"] == LINK


def test_start_again_survives_the_sign_in(cast: Cast) -> None:
    session, client = make_session(cast.alice), Client()
    link = f"/sessions/new/?like={session.pk}"
    action, wanted = form_of(client.get(entrance_to(client, link)).content.decode())
    answer = client.post(action, RIGHT | {"next": wanted}, follow=True)
    assert answer.redirect_chain == [(link, 302)]
    assert session.name in answer.content.decode()
