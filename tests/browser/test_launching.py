"""The launch form in the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import RESOURCES, REVIEW, Visitor
from tests.patience import patient
from tests.system.client import Body, Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
STARTED_MS = patient(45_000)


@pytest.fixture
def launched(alice: Client) -> Iterator[None]:
    """Ends what a test has launched."""
    before = {session["id"] for session in alice.sessions()}
    yield
    alice.end(*[session["id"] for session in alice.sessions() if session["id"] not in before])


@pytest.fixture
def full_house(alice: Client) -> Iterator[Body]:
    """A session that holds every core."""
    session = alice.wait_until_running(alice.launch("takes-all", resources={"cpu": 4, "mem": "64m"})["id"])
    yield session
    alice.end(session["id"])


@pytest.mark.ci
@pytest.mark.core
def test_it_shows_the_message_at_its_field_and_keeps_what_was_typed(visit: Visit) -> None:
    visitor = _at_the_form(visit)
    page = visitor.page
    page.get_by_role("radio", name=re.compile("^Batch")).check()
    page.get_by_label("Startup command").fill("echo <b>kept</b>")
    page.get_by_label("Name optional").fill("-not-a-name")
    visitor.step(RESOURCES)
    page.get_by_label("CPU cores", exact=True).fill("many")
    page.get_by_label("CPU cores", exact=True).press("Enter")  # goes on, and launches nothing
    expect(page.get_by_role("heading", name="Data & storage", level=2)).to_be_focused()
    steps, launch = page.get_by_role("navigation", name="Steps"), page.get_by_role("button", name="Launch", exact=True)
    places = [link.bounding_box() for link in steps.get_by_role("link").all()]
    page.get_by_role("button", name="Skip to review").click()

    expect(launch).to_be_disabled()
    expect(launch).to_have_accessible_description(re.compile("one thing needs attention"))
    expect(steps.get_by_role("link", name="Session type needs attention")).to_be_visible()
    assert [link.bounding_box() for link in steps.get_by_role("link").all()] == places, "none moves under the pointer"
    card = page.get_by_role("region", name="Session type").locator("visible=true").last
    expect(card).to_contain_text("Name: Begin with a letter")
    expect(card).to_contain_text("echo <b>kept</b>")
    card.get_by_role("link", name="Edit").click()
    name = page.get_by_label("Name optional")
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(name).to_have_accessible_description(re.compile("Begin with a letter"))
    expect(name).to_have_value("-not-a-name")
    expect(page.get_by_label("Startup command")).to_have_value("echo <b>kept</b>")

    name.fill("a-name")
    page.go_back()  # to the review, which is made anew
    expect(page.get_by_role("region", name="Resource allocation").last).to_contain_text("'many' is not a number")
    visitor.step(RESOURCES)
    expect(page.locator("#id_cpu_error")).to_contain_text("'many' is not a number")
    page.get_by_label("CPU cores", exact=True).fill("1")
    visitor.step(REVIEW)
    expect(launch).to_be_enabled()
    launch.click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(launch).to_be_enabled()


@pytest.mark.ci
@pytest.mark.core
@pytest.mark.usefixtures("launched")
def test_it_shows_why_a_session_cannot_start_yet_and_its_place(visit: Visit, full_house: Body, alice: Client) -> None:
    visitor = _at_the_form(visit)
    page = visitor.page
    page.get_by_label("Name optional").fill("comes-later")
    visitor.launch()
    expect(visitor.status).to_have_text("Pending")
    notice = page.locator("#session-head .state-notice")
    expect(notice).to_contain_text("Waiting for free resources · position 1 in the queue of default")
    expect(notice).to_contain_text("No agent has room")
    alice.end(full_house["id"])
    expect(visitor.status).to_have_text("Running", timeout=STARTED_MS)


@pytest.mark.usefixtures("launched")
def test_it_starts_a_cluster_with_variables_from_rows_that_come_and_go(visit: Visit) -> None:
    visitor = _at_the_form(visit)
    page = visitor.page
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile("^Shell")).check()
    page.get_by_label("CPU cores", exact=True).fill("0.2")
    page.get_by_label("Memory", exact=True).fill("64m")
    for number, (name, value) in enumerate([("FIRST", "1 <i>"), ("GONE", "2"), ("LAST", "x=y")], 1):
        if number > 1:
            page.get_by_role("button", name="Add variable").click()
        page.get_by_label(f"Name of variable {number}").fill(name)
        page.get_by_label(f"Value of variable {number}").fill(value)
    page.get_by_role("button", name="Remove variable 2").click()
    expect(page.get_by_label("Name of variable 2")).to_have_value("LAST")
    page.get_by_label("Kernels", exact=True).fill("2")
    visitor.launch("#terminal")
    expect(visitor.status).to_have_text("Running", timeout=STARTED_MS)
    visitor.type('echo "[$FIRST|$GONE|$LAST|$BACKENDAI_CLUSTER_SIZE]"')
    expect(visitor.screen).to_contain_text("[1 <i>||x=y|2]")
    page.get_by_role("tab", name="Overview").click()
    expect(page.get_by_role("cell", name="sub1 Log of sub1")).to_be_visible()


@pytest.mark.usefixtures("launched")
def test_it_holds_a_batch_session_back_until_its_time(visit: Visit) -> None:
    visitor = _at_the_form(visit)
    page = visitor.page
    expect(page.get_by_label("Schedule the start")).to_be_hidden()
    page.get_by_role("radio", name=re.compile("^Batch")).check()
    page.get_by_label("Startup command").fill("true")
    page.get_by_label("Schedule the start").check()
    page.get_by_label("Earliest start").fill("2090-03-01T12:00")
    page.get_by_label("Set a timeout").check()
    page.get_by_role("spinbutton", name="Timeout").fill("90")
    page.get_by_label("Unit of the timeout").select_option("minutes")
    visitor.step("Network")
    ports = page.get_by_label("Ports to open")
    ports.press_sequentially("8081, 9000 80")
    ports.press("Enter")
    expect(page.locator("#ports-faults")).to_have_text("Port 80 is not between 1024 and 65535.")
    page.get_by_role("button", name="Remove port 80", exact=True).click()

    expect(page).to_have_url(re.compile(r"starts_at=2090.*preopen_ports=8081%2C\+9000&"))
    visitor.reload()
    expect(page.get_by_role("heading", name="Network", level=2)).to_be_visible()
    expect(page.get_by_role("button", name="Edit port 9000")).to_be_visible()
    expect(page.locator("#from-link")).to_have_count(0)
    page.go_back()
    expect(page.get_by_label("Startup command")).to_have_value("true")
    expect(page.get_by_label("Earliest start")).to_have_value("2090-03-01T12:00")
    expect(page.get_by_label("Schedule the start")).to_be_checked()
    expect(page.get_by_label("Earliest start")).to_be_visible()
    visitor.reload()  # what is foreseen of the form at first heeds the time, too
    expect(page.locator("#launch-outlook")).to_contain_text(re.compile("Starts at .*2090"))
    there = page.context.new_page()  # as somebody who was sent the address
    there.goto(page.url)
    expect(there.get_by_text("This form was filled from a link")).to_be_visible()
    there.close()
    visitor.launch()
    notice = page.locator("#session-head .state-notice")
    expect(notice).to_contain_text("Waiting for its start time")
    expect(notice.locator("time").first).to_contain_text("2090")


def _at_the_form(visit: Visit) -> Visitor:
    visitor = visit(ALICE)
    visitor.go("/sessions/new/")
    return visitor
