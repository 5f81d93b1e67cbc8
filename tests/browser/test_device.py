"""A program on another computer is allowed in a browser, from its first question to its token."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE, PASSWORD

pytestmark = [pytest.mark.browser, pytest.mark.system]
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@pytest.mark.core
def test_a_person_signs_in_allows_a_program_and_its_code_gives_one_token(walk: Visit, campus: Campus) -> None:
    asked = _post(campus, "", client_name="bai on <b>laptop</b>").json()
    question = {"device_code": asked["device_code"], "grant_type": GRANT}
    assert _post(campus, "token/", **question).json()["error"] == "authorization_pending"
    visitor = walk()
    page = visitor.page
    visitor.go(asked["verification_uri_complete"].removeprefix(campus.platform.url))
    page.get_by_label("E-mail address").fill(ALICE)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    code = page.get_by_label("Code")
    expect(code).to_have_value(asked["user_code"])
    code.fill("BBBB-BBBB")
    code.press("Enter")
    expect(code).to_be_focused()
    expect(page.locator("#id_code_error")).to_contain_text("No computer asks with this code now.")
    assert visitor.faults_in_every_light() == []
    code.fill(asked["user_code"].lower())
    code.press("Enter")
    expect(page.get_by_role("heading", name="Allow this computer?", level=1)).to_be_visible()
    expect(page.get_by_text("bai on <b>laptop</b>", exact=True)).to_be_visible()
    assert visitor.faults_in_every_light() == []
    page.get_by_label("Valid for").select_option("7")
    page.get_by_role("button", name="Allow this computer").press("Enter")
    expect(page.get_by_role("heading", name="Access tokens", level=1)).to_be_visible()
    expect(page.get_by_text("The computer is allowed.")).to_be_visible()
    given = _post(campus, "token/", **question).json()
    bearer = {"Authorization": f"Bearer {given['access_token']}"}
    me = f"{campus.platform.url}/api/v1/me/"
    assert requests.get(me, headers=bearer, timeout=30).json()["email"] == given["user"] == ALICE
    assert _post(campus, "token/", **question).json()["error"] == "invalid_grant"
    visitor.reload()
    expect(page.get_by_role("row", name="bai on <b>laptop</b>")).to_be_visible()
    assert requests.delete(f"{me}token/", headers=bearer, timeout=30).status_code == 204
    assert requests.get(me, headers=bearer, timeout=30).status_code == 401


def _post(campus: Campus, path: str, **body: Any) -> requests.Response:
    return requests.post(f"{campus.platform.url}/api/v1/device/{path}", json=body, timeout=30)
