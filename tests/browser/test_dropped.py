"""Requests that the network drops on their way."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


def test_a_part_of_the_page_is_asked_for_again_until_it_comes(visit: Visit) -> None:
    visitor = visit(ALICE)
    asked: list[Route] = []

    def drop_two(route: Route) -> None:
        asked.append(route)
        if len(asked) > 2:
            route.fulfill(body="<p>It came.</p>")
        else:
            route.abort()

    visitor.page.route("**/announcements/", drop_two)
    visitor.go("/dashboard/")
    expect(visitor.page.locator("#announcements")).to_have_text("It came.")
    _forget_the_drops(visitor.complaints)


def test_what_changes_something_is_not_sent_again_by_itself(visit: Visit) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    asked: list[Route] = []

    def drop(route: Route) -> None:
        asked.append(route)
        route.abort()

    visitor.go("/dashboard/")
    page.route("**/notifications/seen/", drop)
    page.evaluate("htmx.ajax('POST', '/notifications/seen/', { source: '.skip-link' }).catch(() => {})")
    page.wait_for_timeout(3000)
    assert len(asked) == 1
    _forget_the_drops(visitor.complaints)


def _forget_the_drops(complaints: list[str]) -> None:
    assert all("ERR_FAILED" in each or "htmx:" in each for each in complaints), complaints
    complaints.clear()
