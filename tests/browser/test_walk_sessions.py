"""Sessions in the list and in their panel: what each says, to whom, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ADMIN, ALICE, CHARLIE, EMOJI, RIGHT_TO_LEFT, SCRIPT
from tests.browser.visitor import Visitor
from tests.system.client import Body

pytestmark = [pytest.mark.browser, pytest.mark.system]
LATER = {"type": "batch", "startup_command": f"echo '{SCRIPT}'", "starts_at": "2090-01-01T00:00:00Z"}
FACTS = {
    "Session ID", "User", "Project", "Type", "Image", "Mounted folders", "Resource allocation", "Allocated",
    "Elapsed time", "Created", "Agent", "Cluster mode", "Idle checks", "Resource usage", "Environment variables",
}  # fmt: skip


@pytest.fixture(scope="module")
def sessions(campus: Campus) -> Iterator[dict[str, Body]]:
    """A running cluster, one that waits, one that was cancelled, one that has ended."""
    alice, variables = campus.alice, {"GREETING": SCRIPT, "TURNED": RIGHT_TO_LEFT, "TUBES": EMOJI}
    found = {
        "runs": alice.launch("runs-here", resources={"cpu": 1, "mem": "1g"}, cluster_size=2, environ=variables),
        "waits": alice.launch("waits-here", **LATER),
        "cancelled": alice.launch("was-cancelled", **LATER),
        "ended": alice.launch("has-ended"),
    }
    alice.wait_until_running(found["ended"]["id"])
    alice.end(found["cancelled"]["id"], found["ended"]["id"])
    yield {name: alice.session(one["id"]) for name, one in found.items()}
    alice.end(found["runs"]["id"], found["waits"]["id"])


@pytest.fixture(autouse=True)
def _all_are_there(campus: Campus, sessions: dict[str, Body]) -> None:
    campus.alice.wait_until_running(sessions["runs"]["id"])


def test_tabs_count_by_type_and_everybody_sees_what_is_theirs(walk: Visit, sessions: dict[str, Body]) -> None:
    page = walk(ALICE).page
    types, views = (page.get_by_role("navigation", name=name) for name in ("Session types", "Live or finished"))
    expect(types.get_by_role("link")).to_have_text(["All 2", "Interactive 1", "Batch 1"])
    expect(page.get_by_role("navigation", name="Whose sessions")).to_have_count(0)
    types.get_by_role("link", name="Batch").click()
    rows = page.locator("#session-list tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("waits-here")
    views.get_by_role("link", name="Finished").click()
    expect(page.locator("#session-list")).to_contain_text("was-cancelled")
    expect(page.locator("#session-list")).not_to_contain_text("waits-here")
    assert walk(CHARLIE).page.locator("#session-list tbody tr").count() == 0
    admin = walk(ADMIN).page
    expect(admin.locator("#session-list")).to_contain_text("runs-here")
    admin.get_by_role("link", name="Mine").click()
    expect(admin.locator("#session-list")).not_to_contain_text("runs-here")


def test_the_list_is_narrowed_sorted_and_sent_as_an_address(walk: Visit, sessions: dict[str, Body]) -> None:
    page = walk(ALICE).page
    page.get_by_role("link", name="Session", exact=True).click()
    expect(page).to_have_url(re.compile("sort=name"))
    expect(page.locator("#session-list .row-link")).to_have_text(["runs-here", "waits-here"])
    page.get_by_text("Filter", exact=True).click()
    page.get_by_role("checkbox", name="Pending").check()
    expect(page.locator("#session-list .row-link")).to_have_text(["waits-here"])
    expect(page).to_have_url(re.compile("status=PENDING"))
    there = walk(ALICE)
    there.go(page.url)
    expect(there.page.locator("#session-list .row-link")).to_have_text(["waits-here"])
    there.page.get_by_role("link", name=re.compile("Status: Pending")).click()
    expect(there.page.locator("#session-list .row-link")).to_have_text(["runs-here", "waits-here"])


@pytest.mark.core
def test_the_panel_has_every_fact_and_every_typed_word_as_text(walk: Visit, sessions: dict[str, Body]) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    drawer = _panel(visitor, "runs-here")
    expect(drawer.locator("#kernels-title")).to_be_visible()
    facts = {text.strip() for text in drawer.locator("dt").all_inner_texts()}
    assert facts >= FACTS, FACTS - facts
    actions = drawer.get_by_role("group", name="Actions").locator(".btn .action-word")
    assert actions.all_inner_texts()[:4] == ["Apps", "Terminal", "Console", "Files"]
    assert actions.all_inner_texts()[-1] == "Terminate"
    end = drawer.get_by_role("link", name="Terminate").or_(drawer.get_by_role("button", name="Terminate")).first
    place = end.bounding_box()
    assert place and place["x"] + place["width"] <= page.viewport_size["width"], "no action lies beyond the drawer"
    expect(drawer.locator(".variables")).to_contain_text("GREETING=••••••")
    expect(drawer.locator("tbody td:first-child strong")).to_have_text(["main1", "sub1"])
    assert page.title().startswith("runs-here"), "nothing that was typed has run"
    assert visitor.faults_in_every_light() == []
    drawer.get_by_role("link", name="Show values").click()
    values = page.get_by_role("dialog", name="Environment variables").locator("dd bdi")
    expect(values).to_have_text([SCRIPT, RIGHT_TO_LEFT, EMOJI])
    assert visitor.faults_in_every_light() == []
    page.keyboard.press("Escape")
    expect(drawer.get_by_role("link", name="Show values")).to_be_focused()


@pytest.mark.parametrize(
    ("name", "title", "tone"),
    [("waits", "Waiting for its start time", "wait"), ("cancelled", "Cancelled", "over"), ("ended", "Ended", "over")],
)
def test_what_does_not_run_says_why(walk: Visit, sessions: dict[str, Body], name: str, title: str, tone: str) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{sessions[name]['id']}/")
    expect(visitor.status).to_have_class(re.compile(f"tone-{tone}"))
    page.get_by_role("link", name="Info", exact=True).click()
    box = page.get_by_role("dialog")
    expect(box.get_by_role("heading", level=2)).to_contain_text(title)
    expect(box.locator("dl").first).to_be_visible()
    assert visitor.faults_in_every_light() == []
    page.keyboard.press("Escape")
    expect(box).not_to_be_visible()
    expect(page.get_by_role("link", name="Edit the name")).to_have_count(int(name == "waits"))


def test_the_history_is_narrowed_by_seven_fields_together(walk: Visit, sessions: dict[str, Body]) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{sessions['ended']['id']}/history/")
    rows, form = page.locator("#history-rows tbody[id^='record-']"), page.get_by_role("form", name="Filter the history")
    every = rows.count()
    assert every > 2
    uid = (rows.first.get_attribute("id") or "").removeprefix("record-")
    form.get_by_role("textbox", name="ID", exact=True).fill(uid)
    expect(rows).to_have_count(1)
    form.get_by_role("textbox", name="ID", exact=True).fill("")
    expect(rows).to_have_count(every)
    form.get_by_label("To status").select_option("RUNNING")
    expect(rows).to_have_count(1)
    form.get_by_label("From status").select_option("PENDING")
    expect(page.locator("#history-rows")).to_contain_text("Nothing in the history matches.")
    form.get_by_label("To status").select_option("SCHEDULED")
    expect(rows).to_have_count(1)
    expect(rows.get_by_role("button", name=re.compile("steps?$"))).to_be_visible()
    for label, value in (("Phase", "schedule"), ("Result", "SUCCESS")):
        form.get_by_label(label).select_option(value)
        expect(rows).to_have_count(1)
    form.get_by_label("Error code").fill("no-such-code")
    expect(rows).to_have_count(0)
    form.get_by_role("button", name="Refresh").click()
    expect(rows).to_have_count(0)


@pytest.mark.core
def test_an_end_is_asked_for_and_force_says_what_it_leaves(walk: Visit, campus: Campus) -> None:
    session = campus.alice.launch("ends-now")
    campus.alice.wait_until_running(session["id"])
    visitor = walk(ALICE)
    page = visitor.page
    drawer = _panel(visitor, "ends-now")
    drawer.get_by_role("link", name="Terminate", exact=True).click()
    box = page.get_by_role("dialog", name=re.compile("^Terminate"))
    expect(box).to_contain_text("Its kernels will be deleted")
    force = box.get_by_role("checkbox", name=re.compile("force", re.IGNORECASE))
    force.check()
    assert visitor.faults_in_every_light() == []
    box.get_by_role("button", name="Terminate").click()
    expect(drawer.locator("#session-head .status").first).to_have_text("Terminated")


def _panel(visitor: Visitor, name: str) -> Locator:
    page = visitor.page
    expect(page.locator("#live-mark")).to_have_text("Live")  # its scripts have started
    page.locator("#session-list").get_by_role("link", name=name, exact=True).click()
    return page.get_by_role("dialog", name=name, exact=True)
