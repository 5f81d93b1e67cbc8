"""Terminals that the portal refuses: the page says why, and offers what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE, CHARLIE, PASSWORD
from tests.browser.visitor import Visitor
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
# What the browser itself says of a refused handshake, and of what else the page asks for without the login.
_EXPECTED = re.compile(
    r"WebSocket connection to .* 403|\b40[134] for .*/sessions/|Code 40[134] from .*/sessions/|/api/v1/me/"
)


@pytest.fixture(scope="module")
def running(alice: Client) -> Iterator[str]:
    """The address of a session that runs."""
    session = alice.wait_until_running(alice.launch("refusing", image="shell")["id"])
    yield f"/sessions/{session['id']}/"
    alice.end(session["id"])


def test_a_refused_handshake_is_explained_and_tried_again_on_request(visit: Visit, running: str) -> None:
    charlie, alice = visit(CHARLIE), visit(ALICE)
    page, own = alice.page, alice.page.context.cookies()
    alice.go(running)
    _hold_parts(page)
    _carry(page, charlie.page.context.cookies())
    page.get_by_role("tab", name="Terminal").click()
    notice = page.locator("#terminal-box .screen-notice")
    expect(notice).to_contain_text("You may not open this terminal.")
    expect(page.locator("#terminal-state")).to_have_text("Closed")
    _carry(page, [])
    notice.get_by_role("button", name="Reconnect", exact=True).click()
    expect(notice).to_contain_text("You are signed out.")
    _carry(page, own)
    notice.get_by_role("button", name="Sign in", exact=True).click()
    alice.type("echo back-$((6*7))")
    expect(alice.screen).to_contain_text("back-42")
    expect(notice).to_be_hidden()
    _forget(alice)


def test_a_terminal_whose_login_ends_leads_to_sign_in_and_back(visit: Visit, running: str) -> None:
    visitor = visit()
    visitor.sign_in(ALICE, afresh=True)
    page = visitor.page
    visitor.go(f"{running}#terminal")
    _hold_parts(page)
    expect(page.locator("#terminal-state")).to_have_text("Connected")
    window = page.context.new_page()
    window.goto(page.url.partition("#")[0])
    window.locator("header summary").filter(has_text="Account of").click()
    window.get_by_role("button", name="Sign out").click()
    expect(window.get_by_label("Password")).to_be_visible()
    notice = page.locator("#terminal-box .screen-notice")
    expect(notice).to_contain_text("You are signed out.")
    notice.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_label("E-mail address").fill(ALICE)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(f"{re.escape(running)}#terminal$"))
    expect(page.locator("#terminal-state")).to_have_text("Connected")
    _forget(visitor)


def _hold_parts(page: Page) -> None:
    """Renew no part of the page: a part that meets the sign-in page leads there by itself, now or a second later."""
    page.route("**/*", lambda route: route.fulfill(status=204) if _is_part(route) else route.fallback())


def _is_part(route: Route) -> bool:
    return "hx-request" in route.request.headers


def _carry(page: Page, cookies: list[Any]) -> None:
    page.context.clear_cookies()
    page.context.add_cookies(cookies)


def _forget(visitor: Visitor) -> None:
    assert all(_EXPECTED.search(each) for each in visitor.complaints), visitor.complaints
    visitor.complaints.clear()
