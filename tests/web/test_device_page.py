"""The page on which a person allows a program on another computer."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import DeviceRequest, User
from backendai.domain.accounts.services.devices import open_request, redeem_device_code
from backendai.domain.accounts.sign_in import logins
from backendai.domain.activity.models import AuditEntry
from tests.cast import PASSWORD, Cast
from tests.web.test_links_after_sign_in import entrance_to, form_of
from tests.web.test_second_factors import CODE, browser, code_of, set_up_app, sign_in

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
PAGE = "/device/"


def asking(name: str = "bai on laptop", scopes: tuple[str, ...] = ()) -> tuple[DeviceRequest, str]:
    return open_request(name, scopes, "192.0.2.7", now=timezone.now())


def test_it_shows_who_asks_for_what_and_gives_what_was_chosen(cast: Cast, browse: Browse) -> None:
    row, secret = asking("<b>bai</b>", ("sessions",))
    client = browse(cast.alice)
    first = client.get(PAGE, {"code": row.user_code}).content.decode()
    assert f'value="{row.user_code}"' in first
    assert "Allow this computer" not in first, "a link alone asks nothing"
    shown = client.post(PAGE, {"code": f" {row.user_code.lower().replace('-', ' ')} "})
    page = shown.content.decode()
    for text in ("&lt;b&gt;bai", "192.0.2.7", row.user_code, "launch, use and end sessions", cast.alice.email):
        assert text in page, text
    assert "administer" not in page
    assert [value for value in re.findall(r'<option value="(\d+)"', page)] == ["7", "30", "90"]
    row.refresh_from_db()
    assert row.state == "pending"
    done = client.post(PAGE, {"code": row.user_code, "answer": "allow", "days": "90"})
    assert done["Location"] == "/account/tokens/"
    token, _ = redeem_device_code(secret, now=timezone.now())
    assert (token.user, token.scopes) == (cast.alice, ["read", "sessions"])
    assert token.expires_at - timezone.now() > timedelta(days=89)
    told = AuditEntry.objects.get(action="device.allow")
    assert (told.actor, told.details["address"], told.details["days"]) == (cast.alice, "192.0.2.7", 90)


def test_a_request_is_answered_once(cast: Cast, browse: Browse) -> None:
    row, _ = asking()
    assert browse(cast.bob).post(PAGE, {"code": row.user_code, "answer": "refuse"}).status_code == 302
    late = browse(cast.alice).post(PAGE, {"code": row.user_code, "answer": "allow", "days": "7"})
    assert late.status_code == 422
    row.refresh_from_db()
    assert (row.state, row.user) == ("refused", cast.bob)


@pytest.mark.parametrize(
    ("fields", "field"),
    [({}, "code"), ({"code": "BBBB-BBBB"}, "code"), ({"code": "x" * 33}, "code"), ({"days": "365"}, "days")],
)
def test_a_fault_is_at_its_field(cast: Cast, browse: Browse, fields: dict[str, str], field: str) -> None:
    row, _ = asking()
    if field == "days":
        fields = fields | {"code": row.user_code, "answer": "allow"}
    answer = browse(cast.alice).post(PAGE, fields)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert f'id="id_{field}_error"' in answer.content.decode()
    assert DeviceRequest.objects.get().state == "pending"


def test_wrong_codes_are_limited_for_a_person_and_right_ones_are_not(cast: Cast, browse: Browse) -> None:
    client, (row, _) = browse(cast.alice), asking()
    for _ in range(2 * logins.FREE_TRIES):
        assert client.post(PAGE, {"code": row.user_code}).status_code == 200
    for _ in range(logins.FREE_TRIES):
        assert "No computer asks" in client.post(PAGE, {"code": "BBBB-BBBB"}).content.decode()
    refused = client.post(PAGE, {"code": row.user_code})
    assert refused.status_code == 422
    assert "Too many wrong codes" in refused.content.decode()
    assert browse(cast.bob).post(PAGE, {"code": row.user_code}).status_code == 200


def test_an_answer_needs_the_form_of_the_page(cast: Cast) -> None:
    row, _ = asking()
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice)
    assert client.post(PAGE, {"code": row.user_code, "answer": "allow", "days": "7"}).status_code == 403
    client.get(PAGE, {"code": row.user_code, "answer": "allow", "days": "7"})
    row.refresh_from_db()
    assert row.state == "pending"


def test_the_code_survives_the_sign_in_with_a_second_factor(cast: Cast) -> None:
    secret = set_up_app(sign_in())
    link, client = f"{PAGE}?code=BCDF-GHJK", browser()
    action, wanted = form_of(client.get(entrance_to(client, link)).content.decode())
    step = client.post(action, {"username": cast.alice.email, "password": PASSWORD, "next": wanted})
    assert step["Location"].startswith(CODE)
    assert client.post(step["Location"], {"code": code_of(secret, ahead=1)})["Location"] == link


def test_a_person_who_needs_a_second_factor_sets_it_up_first(cast: Cast, settings: Any) -> None:
    settings.REQUIRE_MFA = "all"
    row, _ = asking()
    client = sign_in()
    assert (
        client.get(PAGE)["Location"] == client.post(PAGE, {"code": row.user_code})["Location"] == "/account/security/"
    )
