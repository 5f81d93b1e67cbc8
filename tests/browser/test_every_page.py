"""What pages become while they are used is readable by all, narrow enough for a phone, and silent behind the scenes.
How each address looks at first is seen to elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ADMIN, CHARLIE
from tests.browser.visitor import RESOURCES, REVIEW, Visitor
from tests.system.client import Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
Walk = Iterator[str]


@pytest.fixture(scope="module")
def paths(platform: Platform, alice: Client) -> Iterator[dict[str, str]]:
    """Sessions in several states; their addresses by name."""
    platform.client.end(platform.client.launch("ended-page")["id"])
    running = alice.wait_until_running(alice.launch("running-page", image="shell", cluster_size=2)["id"])
    waiting = alice.launch("waiting-page", resources={"cpu": 4, "mem": "64m"})
    job = alice.launch("job-page", type="batch", startup_command="true", starts_at="2090-01-01T00:00:00Z")
    yield {session["name"]: f"/sessions/{session['id']}/" for session in (running, waiting, job)}
    alice.end(running["id"], waiting["id"], job["id"])


@pytest.mark.parametrize(
    "walk",
    [pytest.param(walk, marks=pytest.mark.long) for walk in ("_signed_out", "_newcomer", "_lists")]
    + ["_form", "_session"],
)
def test_it_has_no_fault_that_shuts_anybody_out(visit: Visit, paths: dict[str, str], walk: str) -> None:
    visitor = visit()
    steps: Callable[[Visitor, dict[str, str]], Walk] = globals()[walk]
    for step in steps(visitor, paths):
        assert visitor.faults_in_every_light() == [], step


def _signed_out(visitor: Visitor, paths: dict[str, str]) -> Walk:
    visitor.go("/login/")
    visitor.page.get_by_role("button", name="Sign in").click()
    expect(visitor.page.locator("[aria-invalid=true]").first).to_be_focused()
    yield "login refused"
    visitor.go("/nowhere/")
    yield "not found"


def _newcomer(visitor: Visitor, paths: dict[str, str]) -> Walk:
    visitor.sign_in(CHARLIE)
    yield "empty list"
    visitor.page.locator(".top-end details.menu summary").click()
    yield "menu"


def _lists(visitor: Visitor, paths: dict[str, str]) -> Walk:
    visitor.sign_in(ADMIN)
    expect(visitor.page.locator("#session-list")).to_contain_text("waiting-page")
    yield "sessions"
    for path in ("/?view=finished", "/?q=nothing-like-it"):
        visitor.go(path)
        yield path
    visitor.go("/account/tokens/")
    visitor.page.get_by_role("button", name="Create token").click()
    expect(visitor.page.locator("[aria-invalid=true]")).to_be_focused()
    yield "account refused"


def _form(visitor: Visitor, paths: dict[str, str]) -> Walk:
    visitor.sign_in(ADMIN)
    visitor.go("/sessions/new/")
    expect(visitor.page.locator("#launch-outlook")).not_to_be_empty()
    yield "launch"
    visitor.page.get_by_role("radio", name=re.compile("^Batch")).check()
    yield "launch batch"
    for name in ("Data & storage", "Network", RESOURCES):
        visitor.step(name)
        yield name
    visitor.page.get_by_label("Value of variable 1").fill("without a name")
    visitor.page.get_by_label("CPU cores", exact=True).fill("many")
    visitor.step(REVIEW)
    expect(visitor.page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    expect(visitor.page.locator(".review-card.is-wrong").first).to_be_visible()
    yield "launch refused"


def _session(visitor: Visitor, paths: dict[str, str]) -> Walk:
    visitor.sign_in(ADMIN)
    for name, path in paths.items():
        visitor.go(path)
        if name == "waiting-page":
            expect(visitor.page.locator("#outlook")).to_contain_text("Not yet.")
            visitor.page.locator("#outlook summary").click()
        yield name
    visitor.go(paths["running-page"])
    for tab in ("Terminal", "Log"):
        visitor.page.get_by_role("tab", name=tab).click()
        if tab == "Terminal":
            expect(visitor.page.locator("#terminal-state")).to_have_text("Connected")
        yield tab
    visitor.page.locator("#terminate-button").click()
    expect(visitor.page.get_by_role("dialog")).to_be_visible()
    yield "dialog"


@pytest.mark.long
def test_what_stands_on_every_page_is_looked_at_again_where_it_differs(visit: Visit, alice: Client) -> None:
    visitor = visit(ADMIN)
    link = visitor.page.locator(".top-nav a").last
    link.evaluate("(one) => one.setAttribute('aria-controls', 'main')")
    assert visitor.faults_in_every_light() == []
    visitor.page.locator("main").evaluate("(one) => { one.id = 'elsewhere'; }")
    assert _rules_that_fail(visitor) == {"aria-valid-attr-value"}
    visitor.page.locator("main").evaluate("(one) => { one.id = 'main'; }")
    assert visitor.faults_in_every_light() == []
    link.evaluate("(one) => { one.style.color = getComputedStyle(document.body).backgroundColor; }")
    assert _rules_that_fail(visitor) == {"color-contrast"}


def _rules_that_fail(visitor: Visitor) -> set[str]:
    return {fault.split(": ")[1] for fault in visitor.faults_in_every_light()}
