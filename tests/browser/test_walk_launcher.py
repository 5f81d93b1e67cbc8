"""The launcher from one step to the next: what each asks, refuses and explains."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ADMIN, ALICE, CHARLIE
from tests.browser.visitor import RESOURCES, REVIEW, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.system]
STEPS = ["Session type", RESOURCES, "Data & storage", "Network", REVIEW]
TOO_SHORT = "Use at least 4 characters (3 given)."


@pytest.fixture(autouse=True)
def _launched(campus: Campus) -> Iterator[None]:
    """Ends what a test has launched."""
    yield
    campus.alice.end(*[one["id"] for one in campus.alice.sessions() if one["status"] in ("PENDING", "RUNNING")])


@pytest.mark.core
def test_five_steps_are_gone_through_in_any_order_and_with_three_buttons(walk: Visit) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    page.get_by_role("link", name="New session").first.click()
    steps = page.get_by_role("navigation", name="Steps")
    expect(steps.get_by_role("link")).to_have_text(
        [re.compile(f"^\\s*{number} {re.escape(name)}") for number, name in enumerate(STEPS, 1)]
    )
    for name in (*reversed(STEPS), STEPS[2]):
        visitor.step(name)
        expect(steps.locator("[aria-current=step]")).to_contain_text(name)
    page.get_by_role("button", name="Previous", exact=True).click()
    expect(_title(page)).to_have_text(RESOURCES)
    page.get_by_role("button", name="Next", exact=True).click()
    expect(_title(page)).to_have_text("Data & storage")
    visitor.step("Session type")
    expect(page.get_by_role("button", name="Previous", exact=True)).to_be_hidden()
    page.get_by_role("button", name="Skip to review").click()
    expect(_title(page)).to_have_text(REVIEW)
    expect(page.get_by_role("button", name="Skip to review")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/sessions/new/\?step=5$"))  # nothing else, while nothing was filled in
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()


def test_both_types_say_what_they_are_for_and_a_wrong_name_its_mistake(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    expect(page.get_by_role("radio", name=re.compile("^Interactive .*idle"))).to_be_checked()
    expect(page.get_by_role("radio", name=re.compile("^Batch .*stops when it finishes"))).not_to_be_checked()
    page.get_by_role("textbox", name="Name optional", exact=True).fill("abc")
    visitor.step(REVIEW)
    expect(_card(page, "Session type")).to_contain_text(TOO_SHORT)
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    visitor.step("Session type")
    page.get_by_role("textbox", name="Name optional", exact=True).fill("")
    visitor.step(REVIEW)
    expect(_card(page, "Session type")).to_contain_text("generated")
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()


def test_what_is_wrong_stands_at_its_field_and_marks_its_step_while_one_types(walk: Visit, campus: Campus) -> None:
    campus.alice.launch("is-there", type="batch", startup_command="true", starts_at="2090-01-01T00:00:00Z")
    visitor = _form(walk)
    page = visitor.page
    name, line = page.get_by_role("textbox", name="Name optional", exact=True), page.locator("#launch-outlook")
    mark, said = page.locator("#step-mark-1"), page.locator("#id_name_error")
    for text, message in (("abc", TOO_SHORT), ("is-there", "You already have a session named 'is-there'")):
        name.fill(text)
        name.press("Tab")
        expect(said).to_contain_text(message)
        expect(name).to_have_attribute("aria-invalid", "true")
        expect(name).to_have_accessible_description(re.compile(re.escape(message)))
        expect(mark).to_be_visible()
        expect(line).to_contain_text("Cannot be launched: Name:")
    name.fill("fine-name")
    expect(said).to_have_count(0)
    expect(mark).to_be_hidden()
    expect(line).to_contain_text("Starts now")

    page.get_by_role("radio", name=re.compile("^Batch")).check()
    command = page.get_by_label("Startup command")
    expect(line.locator(".outlook-line:visible")).to_have_text(re.compile("^\\s*Still needed: Startup command\\s*$"))
    expect(mark).to_be_hidden()
    expect(command).not_to_have_attribute("aria-invalid", "true")
    line.get_by_role("link", name="Startup command").click()
    expect(command).to_be_focused()
    command.blur()
    expect(command).to_have_accessible_description(re.compile("A batch session needs a command to run."))
    expect(line.locator(".outlook-line:visible")).to_contain_text("Cannot be launched: Startup command:")
    expect(mark).to_be_visible()
    command.fill("true")
    expect(page.locator("#id_startup_command_error")).to_have_count(0)
    visitor.step(RESOURCES)
    page.get_by_label("Name of variable 1").fill("1A")
    page.get_by_label("Value of variable 1").fill("x")
    expect(page.get_by_label("Name of variable 1")).to_have_accessible_description(re.compile("is not a variable name"))
    page.get_by_label("CPU cores", exact=True).fill("many")
    expect(page.locator("#step-mark-2")).to_be_visible()
    assert visitor.faults_in_every_light() == []


def test_a_secret_that_the_address_does_not_keep_is_asked_for_again(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    visitor.step(RESOURCES)
    page.get_by_label("Name of variable 1").fill("MY_TOKEN")
    page.get_by_label("Value of variable 1").fill("s3cret")
    visitor.step(REVIEW)
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()
    visitor.reload()
    card = _card(page, "Image")
    expect(card).to_contain_text("Values that look secret are not kept in the address: enter MY_TOKEN again.")
    card.get_by_role("link", name="Environment variables:").click()
    expect(page.get_by_label("Value of variable 1")).to_be_focused()
    page.keyboard.type("s3cret")
    visitor.step(REVIEW)
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()


def test_roles_stay_in_the_address_with_their_empty_cells(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    visitor.step(RESOURCES)
    page.get_by_text("Roles: kernels that differ").click()
    for number, (name, part, value) in enumerate([("worker", "Kernels", "2"), ("second", "Memory", "256m")], 1):
        page.get_by_role("button", name="Add role").click()
        role = page.get_by_role("group", name=f"Role {number}")
        role.get_by_label("Name").fill(name)
        role.get_by_label(part).fill(value)
    visitor.step(REVIEW)
    visitor.reload()
    expect(page.locator(".review")).to_contain_text(re.compile("worker × 2.*second × 1", re.DOTALL))
    visitor.step(RESOURCES)
    values = [page.locator(f"#role-{row}-mem") for row in (0, 1)]
    expect(values[0]).to_have_value("")
    expect(values[1]).to_have_value("256m")


def test_a_batch_session_needs_a_command_a_time_ahead_and_a_timeout_of_some_length(walk: Visit, campus: Campus) -> None:
    visitor = _form(walk)
    page = visitor.page
    page.get_by_role("radio", name=re.compile("^Batch")).check()
    page.get_by_label("Schedule the start").check()
    page.get_by_label("Earliest start").fill("2020-01-01T10:00")
    visitor.step(REVIEW)
    card = _card(page, "Session type")
    expect(card).to_contain_text("Startup command:")
    expect(card).to_contain_text("The start time is in the past.")
    visitor.step("Session type")
    page.get_by_label("Startup command").fill("sleep 600")
    page.get_by_label("Schedule the start").uncheck()
    page.get_by_label("Set a timeout").check()
    page.get_by_role("spinbutton", name="Timeout").fill("0")
    visitor.step(REVIEW)
    expect(card).to_contain_text("Enter a time longer than 0.")
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    visitor.reload()
    expect(card).to_contain_text("Enter a time longer than 0.")
    visitor.step("Session type")
    expect(page.get_by_role("spinbutton", name="Timeout")).to_have_value("0")
    page.get_by_role("spinbutton", name="Timeout").fill("")
    visitor.step(REVIEW)
    expect(card).to_contain_text("Enter a timeout or clear the box.")
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    visitor.step("Session type")
    expect(page.get_by_role("spinbutton", name="Timeout")).to_have_accessible_description(re.compile("clear the box"))
    page.get_by_role("spinbutton", name="Timeout").fill("2")
    page.get_by_label("Unit of the timeout").select_option("seconds")
    session_id = visitor.launch()
    ended = campus.alice.wait_for(session_id, "TERMINATED")
    assert ended["status_reason"] == "task-timeout"
    expect(visitor.status).to_have_text("Failed")


def test_a_fault_that_appears_under_the_pointer_does_not_cost_the_click(walk: Visit) -> None:
    page = _form(walk).page
    page.get_by_role("radio", name=re.compile("^Batch")).check()
    command, add = page.get_by_label("Startup command"), page.get_by_role("button", name="Add value")
    expect(page.locator("#still-needed")).to_contain_text("Startup command")  # left empty, it has a fault
    add.scroll_into_view_if_needed()
    command.evaluate("(field) => field.focus({ preventScroll: true })")
    expect(command).not_to_have_attribute("aria-invalid", "true")
    add.hover()
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_label("Name of the value")).to_be_focused()
    expect(command).to_have_attribute("aria-invalid", "true")


def test_an_administrator_launches_for_somebody_whom_the_search_finds(walk: Visit, campus: Campus) -> None:
    visitor = _form(walk, ADMIN)
    page = visitor.page
    page.get_by_role("switch", name="Launch it for somebody else").check()
    address = page.get_by_label("E-mail address of the owner")
    expect(address).to_be_focused()
    address.fill("nobody@example.com")
    page.get_by_role("button", name="Find").click()
    expect(address).to_have_accessible_description(re.compile("nobody@example.com"))
    expect(address).to_have_attribute("aria-invalid", "true")
    address.fill(ALICE)
    address.press("Enter")
    expect(page.locator("#owner-is")).to_be_focused()
    expect(page.locator("#owner-is")).to_contain_text(f"The session will belong to {ALICE}")
    expect(page.get_by_label("Key pair")).to_have_value(campus.rows["key-pairs"])
    visitor.step(RESOURCES)
    expect(page.get_by_label("Resource group", exact=True)).to_have_value("default")
    visitor.step(REVIEW)
    expect(_card(page, "Session type")).to_contain_text(ALICE)
    expect(_card(page, "Session type")).to_contain_text(campus.rows["key-pairs"])
    session_id = visitor.launch()
    assert campus.alice.session(session_id)["owner"] == ALICE
    expect(page.get_by_text(f"This session belongs to {ALICE}")).to_be_visible()


def test_others_see_nothing_of_owners(walk: Visit) -> None:
    visitor = _form(walk, CHARLIE)
    expect(visitor.page.get_by_role("switch", name="Launch it for somebody else")).to_have_count(0)


def test_ports_are_tags_that_come_several_at_once_and_say_what_is_wrong(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    visitor.step("Network")
    ports, faults = page.get_by_label("Ports to open"), page.locator("#ports-faults")
    ports.press_sequentially("8080, 9000 9001")
    ports.press("Enter")
    for port in ("8080", "9000", "9001"):
        expect(page.get_by_role("button", name=f"Edit port {port}")).to_be_visible()
    for wrong, message in (
        ("70000", "Port 70000 is not between"),
        ("9000", "Port 9000 is named twice."),
        ("web", "web is not a port"),
    ):
        ports.fill(wrong)
        ports.press("Enter")
        expect(faults).to_contain_text(message)
        page.get_by_role("button", name=f"Remove port {wrong}", exact=True).last.click()
        expect(faults).not_to_contain_text(message)
    card = page.locator("#step-4 .card").bounding_box()
    mark = page.get_by_label("Help: Network").bounding_box()
    assert card and mark and mark["y"] > card["y"] and mark["x"] + mark["width"] < card["x"] + card["width"]
    page.get_by_label("Help: Network").click()
    expect(page.get_by_text("Until something listens there, its page stays empty.")).to_be_visible()
    assert visitor.faults_in_every_light() == []
    visitor.step(REVIEW)
    expect(_card(page, "Network")).to_contain_text("8080 9000 9001")


def test_variables_that_are_none_are_named_in_their_rows(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    visitor.step(RESOURCES)
    rows = [("", "x"), ("1A", "1"), ("TWICE", "1"), ("TWICE", "2"), ("EMPTY", "")]
    for number, (name, value) in enumerate(rows, 1):
        if number > 1:
            page.get_by_role("button", name="Add variable").click()
            expect(page.get_by_label(f"Name of variable {number}")).to_be_focused()
        page.get_by_label(f"Name of variable {number}").fill(name)
        page.get_by_label(f"Value of variable {number}").fill(value)
    visitor.step(REVIEW)
    card = _card(page, "Image")
    for message in (
        "This value has no name.",
        "'1A' is not a variable name: use A to Z, digits and underscore, no digit first.",
        "TWICE is set twice.",
        "EMPTY has no value.",
    ):
        expect(card).to_contain_text(message)
    card.get_by_role("link", name="Edit").click()
    expect(page.get_by_label("Name of variable 2")).to_have_accessible_description(
        "'1A' is not a variable name: use A to Z, digits and underscore, no digit first."
    )


@pytest.mark.core
def test_the_review_shows_all_of_it_and_leads_back_to_each_step(walk: Visit, campus: Campus) -> None:
    visitor = _form(walk)
    page = visitor.page
    page.get_by_role("textbox", name="Name optional", exact=True).fill("all-of-it")
    visitor.step(RESOURCES)
    page.get_by_label("Name of variable 1").fill("API_TOKEN")
    page.get_by_label("Value of variable 1").fill("s3cret")
    page.get_by_label("CPU cores", exact=True).fill("2")
    page.get_by_label("Memory", exact=True).fill("1g")
    page.get_by_label("Sessions", exact=True).fill("3")
    visitor.step("Network")
    page.get_by_label("Ports to open").fill("8080")
    visitor.step(REVIEW)
    expect(_card(page, "Session type")).to_contain_text("all-of-it")
    environments = _card(page, "Image")
    expect(environments).to_contain_text("local/backendai-tiny:latest")
    expect(environments.get_by_role("button", name="Copy the full image name")).to_be_visible()
    expect(environments).to_contain_text("API_TOKEN")
    expect(environments).not_to_contain_text("s3cret")
    allocation = _card(page, "Resource allocation")
    expect(allocation).to_contain_text(re.compile(r"2.CPU · 1.GiB"))
    expect(allocation).to_contain_text(re.compile(r"Total allocation\s*6.CPU · 3.GiB"))
    expect(_card(page, "Data & storage")).to_contain_text("No folder is mounted")
    expect(_card(page, "Network")).to_contain_text("8080")
    assert "s3cret" not in page.url
    for name in ("Resource allocation", "Network", "Data & storage", "Session type"):
        _card(page, name).get_by_role("link", name="Edit").click()
        expect(_title(page)).to_have_text(RESOURCES if name == "Resource allocation" else name)
        visitor.step(REVIEW)
    visitor.launch()
    names = sorted(
        one["name"] for one in campus.alice.sessions() if one["status"] != "TERMINATED" and "all-of-it" in one["name"]
    )
    assert names == ["all-of-it-1", "all-of-it-2", "all-of-it-3"]


def test_reset_asks_and_empties_and_a_name_that_is_taken_keeps_the_form_and_leads_there(
    walk: Visit, campus: Campus
) -> None:
    taken = campus.alice.launch("is-taken", type="batch", startup_command="true", starts_at="2090-01-01T00:00:00Z")
    visitor = _form(walk)
    page = visitor.page
    page.get_by_role("textbox", name="Name optional", exact=True).fill("is-taken")
    visitor.step(RESOURCES)
    page.get_by_label("CPU cores", exact=True).fill("3")
    visitor.step(REVIEW)
    card = _card(page, "Session type")
    expect(card).to_contain_text("You already have a session named 'is-taken' (pending)")
    expect(card.get_by_role("link", name="View session")).to_have_attribute("href", f"/sessions/{taken['id']}/")
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    visitor.step(RESOURCES)
    expect(page.get_by_label("CPU cores", exact=True)).to_have_value("3")
    page.get_by_role("link", name="Reset").click()
    dialog = page.get_by_role("dialog", name="Reset the form?")
    dialog.get_by_role("button", name="Keep form").click()
    expect(page.get_by_label("CPU cores", exact=True)).to_have_value("3")
    page.get_by_role("link", name="Reset").click()
    dialog.get_by_role("link", name="Reset").click()
    expect(_title(page)).to_have_text("Session type")
    expect(page.get_by_role("textbox", name="Name optional", exact=True)).to_have_value("")


def _form(walk: Visit, email: str = ALICE) -> Visitor:
    visitor = walk(email)
    visitor.go("/sessions/new/")
    expect(visitor.page.locator("#launch-outlook")).not_to_be_empty()  # its scripts have started
    return visitor


def test_on_a_phone_where_the_kernels_lie_can_be_read_whole(walk: Visit) -> None:
    visitor = walk(ALICE, on_phone=True)
    visitor.go("/sessions/new/?step=2")
    page = visitor.page
    lies, size = page.get_by_label("Cluster placement", exact=True), page.get_by_label("Kernels", exact=True)
    assert lies.bounding_box()["width"] > 1.8 * size.bounding_box()["width"]  # type: ignore[index]


def _title(page: Page) -> Locator:
    return page.locator(".step-title:visible")


def _card(page: Page, name: str) -> Locator:
    return page.locator("#launch-review").get_by_role("region", name=name)
