"""A passkey in a real browser, whose device says yes by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Chromium
from tests.browser.people import CHARLIE, PASSWORD
from tests.browser.visitor import Visitor
from tests.system.client import Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
_DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def charlie(chromium: Chromium, platform: Platform, alice: Client) -> Iterator[Visitor]:
    """Charlie, with such a device. Passkeys belong to names, so he does not come by the address."""
    visitor = Visitor(chromium, platform.url.replace("127.0.0.1", "localhost"))
    session = visitor.page.context.new_cdp_session(visitor.page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": _DEVICE})
    yield visitor.sign_in(CHARLIE)
    visitor.leave()


@pytest.mark.core
def test_somebody_adds_a_passkey_signs_in_with_it_alone_and_after_the_password_and_removes_it(charlie: Visitor) -> None:
    page = charlie.page
    charlie.go("/account/security/passkeys/new/")
    page.get_by_label("Name").fill("Laptop")
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_role("heading", name="Recovery codes", level=1)).to_be_visible()
    page.goto("about:blank")  # without its sign-in, the page would go elsewhere by itself
    page.context.clear_cookies()
    charlie.go("/login/?next=/account/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Profile", level=1)).to_be_visible()
    page.goto("about:blank")  # without its sign-in, the page would go elsewhere by itself
    page.context.clear_cookies()
    charlie.go("/login/")
    page.get_by_label("E-mail address").fill(CHARLIE)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    charlie.go("/account/security/")
    assert charlie.accessibility_faults() == []
    page.get_by_role("link", name="Remove Laptop").click()
    page.get_by_role("button", name="Remove passkey").click()
    expect(page.get_by_text("The passkey is removed.")).to_be_visible()
