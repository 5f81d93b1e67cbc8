"""What would start a session now: on the page of one that waits, and under the launch form while one edits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, Route, expect

from tests.browser.conftest import THEMES, Visit
from tests.browser.people import ALICE
from tests.browser.visitor import RESOURCES, REVIEW, wait_until
from tests.patience import patient
from tests.system.client import Body, Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
STARTED_MS = patient(45_000)
_SHIFTS = """() => new Promise((done) => {
  const shifts = [];
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput, sources } of list.getEntries())
      if (!hadRecentInput) shifts.push([value, ...sources.map(({ node }) => node?.id || node?.className)]);
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(shifts), 200);
})"""


@pytest.fixture
def one_core_left(alice: Client) -> Iterator[Body]:
    """A session that leaves one core of four; what a test launches beside it is ended too."""
    before = {session["id"] for session in alice.sessions()}
    session = alice.wait_until_running(alice.launch("takes-most", resources={"cpu": 3, "mem": "64m"})["id"])
    yield session
    alice.end(*[session["id"] for session in alice.sessions() if session["id"] not in before])


@pytest.fixture
def nobody_is_passed(platform: Platform) -> Iterator[None]:
    """A session that has waited for many passes keeps its place: otherwise it lets others pass after ten, in 20 s."""
    group = "from backendai.domain.cluster.models.groups import ResourceGroup as G; "
    change = group + "print(G.objects.get().retries_to_skip); G.objects.update(retries_to_skip={})"
    before = platform.manage("shell", "--no-imports", "-c", change.format(0))
    assert before.returncode == 0, before.stderr
    yield
    platform.manage("shell", "--no-imports", "-c", change.format(int(before.stdout.split()[-1])))


@pytest.mark.ci
@pytest.mark.usefixtures("nobody_is_passed")
@pytest.mark.core
def test_a_waiting_session_says_what_would_start_it_and_opens_the_form_so(
    visit: Visit, alice: Client, one_core_left: Body
) -> None:
    session = alice.launch("wants-two", resources={"cpu": 2, "mem": "64m"})
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/")
    outlook = page.locator("#outlook")
    expect(outlook).to_contain_text("Not yet.")
    expect(outlook).to_contain_text("With 1 CPU core instead of 2 it starts now on")
    for width in (375, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        visitor.reload()
        expect(outlook).to_contain_text("Not yet.")
        shifts = page.evaluate(_SHIFTS)
        assert sum(shift[0] for shift in shifts) < 0.05, f"the page below must stay when the answer comes: {shifts}"
    assert visitor.overflow_on_a_phone() <= 0

    outlook.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(outlook.get_by_role("cell", name="insufficient-resources")).to_be_visible()
    assert visitor.accessibility_faults() == []

    # Another comes to be ahead: the reason has changed, so the part is looked at again and stays unfolded.
    first = alice.launch("comes-first", resources={"cpu": 2, "mem": "64m"}, priority=session["priority"] + 1)
    expect(outlook.get_by_role("link", name="comes-first")).to_have_attribute("href", f"/sessions/{first['id']}/")
    expect(outlook.get_by_role("table")).to_be_visible()
    alice.end(first["id"])
    expect(outlook).to_contain_text("With 1 CPU core instead of 2")

    outlook.get_by_role("link", name="Launch it with less").click()
    visitor.step(RESOURCES)
    expect(page.get_by_label("CPU cores", exact=True)).to_have_value("1")
    visitor.step(REVIEW)
    line, instead = page.locator("#launch-outlook"), page.get_by_role("checkbox", name="instead of wants-two")
    expect(line).to_contain_text("in place of wants-two.")
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    instead.uncheck()
    expect(line).to_contain_text("Queued behind")  # behind the one that waits
    visitor.go(f"/sessions/{session['id']}/")
    expect(outlook).to_contain_text("Not yet.")
    alice.end(one_core_left["id"])
    expect(visitor.status).to_have_text("Running", timeout=STARTED_MS)
    expect(outlook).to_have_text("")


@pytest.mark.usefixtures("one_core_left")
def test_taking_a_suggestion_cancels_the_one_that_waits_and_starts_at_once(visit: Visit, alice: Client) -> None:
    session = alice.launch("asked-too-much", resources={"cpu": 2, "mem": "64m"})
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/")
    page.locator("#outlook").get_by_role("link", name="Launch it with less").click()
    expect(page.locator("#launch-outlook")).to_contain_text("Starts now on")
    visitor.launch()
    expect(visitor.status).to_have_text("Running", timeout=STARTED_MS)
    assert alice.session(session["id"])["status"] == "CANCELLED"


def test_the_line_under_the_form_is_in_sight_and_moves_nothing(visit: Visit) -> None:
    for size in ({"width": 1280, "height": 800}, {"width": 375, "height": 760}):
        visitor = visit(ALICE)
        page = visitor.page
        page.set_viewport_size(size)  # type: ignore[arg-type]
        visitor.go("/sessions/new/?step=2")
        line, cores = page.locator("#launch-outlook .outlook-line"), page.get_by_label("CPU cores", exact=True)
        expect(line).to_be_in_viewport()
        cores.evaluate("(field) => field.scrollIntoView({ block: 'end', behavior: 'instant' })")  # as the tab key does
        place = cores.bounding_box()
        cores.fill("64")
        expect(line).to_contain_text("Cannot be launched:")
        expect(line).to_be_in_viewport()
        cores.fill("many")
        expect(line).to_contain_text("Cannot be launched: CPU cores: 'many' is not a number.")
        assert cores.bounding_box() == place
        bar = page.locator(".launch-bar").bounding_box()
        assert place
        assert bar
        assert place["y"] + place["height"] <= bar["y"], "the field in which one types is not covered"


def test_an_answer_that_does_not_come_is_not_taken_from_before(visit: Visit, alice: Client) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/sessions/new/?step=2")
    line, cores = page.locator("#launch-outlook"), page.get_by_label("CPU cores", exact=True)
    expect(line).not_to_be_empty()
    page.route("**/sessions/new/preview/", lambda route: route.abort())
    cores.fill("0.3")
    expect(line).to_contain_text("Not known now: the portal does not answer.")
    assert visitor.accessibility_faults() == []
    page.unroute("**/sessions/new/preview/")
    cores.fill("64")
    expect(line).to_contain_text("Cannot be launched:")
    assert all("ERR_FAILED" in each or "htmx:" in each for each in visitor.complaints)
    visitor.complaints.clear()


@pytest.mark.core
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.usefixtures("one_core_left")
def test_the_form_says_what_would_happen_while_one_edits(visit: Visit, theme: str) -> None:
    visitor = visit(ALICE, theme=theme)
    page = visitor.page
    visitor.go("/sessions/new/?step=2")
    line, cores = page.locator("#launch-outlook"), page.get_by_label("CPU cores", exact=True)
    page.get_by_label("Memory", exact=True).fill("64m")
    cores.fill("2")
    expect(line).to_contain_text("Waits:")
    expect(line).to_contain_text("With 1 CPU core instead of 2 it starts now on")
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    bar, tallest = page.locator(".launch-bar").bounding_box(), 160
    assert bar and bar["height"] < tallest, "what it says of a change takes the width above the buttons"

    button = line.get_by_role("button", name="Use these amounts")
    button.focus()
    page.keyboard.press("Enter")
    expect(cores).to_have_value("1")
    expect(cores).to_be_focused()
    expect(page.locator("#preset-custom")).to_be_checked()
    expect(line).to_contain_text("Starts now on")
    assert visitor.accessibility_faults() == []

    cores.fill("64")
    expect(line).to_contain_text("Cannot be launched:")
    assert visitor.accessibility_faults() == []
    cores.fill("many")
    expect(line).to_contain_text("Cannot be launched:")
    assert visitor.accessibility_faults() == []


def test_only_the_newest_answer_counts(visit: Visit) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/sessions/new/?step=2")
    line, cores = page.locator("#launch-outlook"), page.get_by_label("CPU cores", exact=True)
    expect(line).not_to_be_empty()
    held = _hold_first(page)
    cores.fill("64")
    wait_until(page, lambda: held, "the first is on its way")
    cores.fill("0.5")
    expect(line).to_contain_text("Starts now on")
    with suppress(Error):
        held[0].continue_()  # the browser has given it up
    page.wait_for_timeout(300)
    expect(line).to_contain_text("Starts now on")


def _hold_first(page: Page) -> list[Route]:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/sessions/new/preview/", hold)
    return held
