"""What belongs to others, and what others have called themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ADMIN, ALICE, CHARLIE, EMOJI, RIGHT_TO_LEFT, SCRIPT
from tests.system.client import Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


@pytest.fixture(scope="module")
def hers(alice: Client) -> Iterator[str]:
    """The address of a session of Alice's whose every text is hostile."""
    texts = {"startup_command": f"echo '{SCRIPT}'; sleep 600", "environ": {"NOTE": SCRIPT + RIGHT_TO_LEFT}}
    session = alice.wait_until_running(alice.launch("hers", type="batch", **texts)["id"])
    yield f"/sessions/{session['id']}/"
    alice.end(session["id"])


def test_it_shows_a_stranger_nothing_and_says_that_nothing_is_there(visit: Visit, hers: str) -> None:
    visitor = visit(CHARLIE)
    expect(visitor.page.get_by_role("heading", name="Start your first session")).to_be_visible()
    expect(visitor.page.locator("#session-list")).not_to_contain_text("hers")
    for path in (hers, f"{hers}panel/", f"{hers}row/", f"{hers}terminate/", "/agents/"):
        answer = visitor.go(path)
        assert answer is not None
        assert answer.status == 404
        expect(visitor.page.get_by_role("heading", name="Page not found")).to_be_visible()


@pytest.mark.core
def test_it_shows_hostile_names_as_text(visit: Visit, hers: str) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/account/")
    expect(page.get_by_role("heading", name=SCRIPT)).to_be_visible()
    expect(page.locator("dd", has_text=EMOJI)).to_be_visible()
    visitor.go("/account/tokens/")
    expect(page.get_by_role("cell", name=SCRIPT, exact=True)).to_be_visible()
    visitor.go("/sessions/new/?step=2")
    expect(page.locator(".choice", has_text=SCRIPT)).to_contain_text(EMOJI)
    visitor.go(hers)
    expect(page.locator(".command")).to_have_text(f"echo '{SCRIPT}'; sleep 600")
    expect(page.locator("dd.variables")).to_contain_text("NOTE=••••••")
    page.get_by_role("link", name="Show values").click()
    expect(page.get_by_role("dialog").locator("dd bdi")).to_have_text(f"{SCRIPT}{RIGHT_TO_LEFT}")
    expect(page).to_have_title("hers · Backend.AI")


def test_it_keeps_names_that_run_the_other_way_to_themselves(visit: Visit) -> None:
    visitor = visit(CHARLIE)
    visitor.go("/account/")
    expect(visitor.page.locator("dd bdi", has_text=SCRIPT)).to_be_visible()
    expect(visitor.page.get_by_role("heading", name=RIGHT_TO_LEFT).locator("bdi")).to_have_text(RIGHT_TO_LEFT)


def test_it_shows_an_administrator_the_session_but_not_its_variables(visit: Visit, hers: str) -> None:
    visitor = visit(ADMIN)
    expect(visitor.page.locator("#session-list")).to_contain_text(ALICE)
    visitor.go(hers)
    expect(visitor.page.locator(".command")).to_be_visible()
    expect(visitor.page.locator("dd.variables")).to_have_count(0)
