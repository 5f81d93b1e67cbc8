"""The list of sessions as a user works in it: order of columns, logs over it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE, SCRIPT
from tests.browser.visitor import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.system]
MEASURED = {"cpu": 1, "mem": "256m"}


@pytest.fixture(scope="module")
def session(campus: Campus) -> Iterator[dict[str, str]]:
    """A running session of Alice's with two kernels."""
    made = campus.alice.launch("talks", image="torch-2.4", resources=MEASURED, cluster_size=2)
    yield campus.alice.wait_until_running(made["id"])
    campus.alice.end(made["id"])


@pytest.mark.ci
@pytest.mark.core
def test_columns_are_put_in_order_with_the_keyboard_and_stay_so(walk: Visit, session: dict[str, str]) -> None:
    visitor = _at_the_list(walk)
    page = visitor.page
    page.get_by_text("Columns", exact=True).click()
    for name in ("Type", "Priority", "Access key"):
        page.get_by_role("checkbox", name=name).check()
    names, earlier = page.locator("#column-order label"), page.get_by_role("button", name="Access key earlier")
    for _ in range(names.count()):
        earlier.press("Enter")
    expect(names.first).to_have_text("Access key")
    expect(earlier).to_be_focused()
    priority = page.get_by_role("checkbox", name="Priority")
    priority.press("Alt+ArrowDown")
    expect(priority).to_be_focused()
    expect(page.locator("#announce")).to_have_text(re.compile(r"^Priority: place \d+ of \d+$"))
    order = names.all_inner_texts()
    assert visitor.faults_in_every_light() == []
    page.get_by_role("button", name="Save").click()
    shown = [name for name in (each.strip() for each in order) if name in ("Type", "Priority", "Access key")]
    assert shown[0] == "Access key"
    heads = page.get_by_role("columnheader")
    expect(heads.filter(has_text=re.compile(r"^\s*(Type|Priority|Access key)\s*$"))).to_have_text(shown)
    visitor.reload()
    expect(heads.filter(has_text=re.compile(r"^\s*(Type|Priority|Access key)\s*$"))).to_have_text(shown)
    page.get_by_text("Columns", exact=True).click()
    for name in shown:
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("button", name="Save").click()
    expect(heads.filter(has_text="Access key")).to_have_count(0)


def test_columns_are_dragged_with_the_mouse_and_fall_back_when_it_is_given_up(
    walk: Visit, session: dict[str, str]
) -> None:
    visitor = _at_the_list(walk)
    page = visitor.page
    page.get_by_text("Columns", exact=True).click()
    for name in ("Type", "Access key"):
        page.get_by_role("checkbox", name=name).check()
    names = page.locator("#column-order label")
    before = [name.strip() for name in names.all_inner_texts()]
    moved = ["Access key", *(name for name in before if name != "Access key")]
    assert moved != before
    _drag_to_the_front(page, "Access key")
    expect(names).to_have_text(moved)
    page.keyboard.press("Escape")
    expect(names).to_have_text(before)
    page.mouse.up()
    _drag_to_the_front(page, "Access key")
    page.mouse.move(5, 5, steps=5)
    page.mouse.up()
    expect(names).to_have_text(before)
    _drag_to_the_front(page, "Access key")
    page.mouse.up()
    expect(names).to_have_text(moved)
    expect(page.locator("#announce")).to_have_text(f"Access key: place 1 of {len(before)}")
    page.get_by_role("button", name="Save").click()
    heads = page.get_by_role("columnheader").filter(has_text=re.compile(r"^\s*(Type|Access key)\s*$"))
    expect(heads).to_have_text(["Access key", "Type"])
    page.get_by_text("Columns", exact=True).click()
    for name in ("Type", "Access key"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("button", name="Save").click()
    expect(heads).to_have_count(0)


@pytest.mark.ci
@pytest.mark.core
def test_a_log_opens_over_the_list_under_an_address_of_its_own(walk: Visit, session: dict[str, str]) -> None:
    visitor = _at_the_list(walk)
    page = visitor.page
    page.evaluate("window.stayed = true")
    opener = page.locator("#session-list").get_by_role("link", name="Log of talks")
    box = page.get_by_role("dialog", name=re.compile("^Log talks"))
    opener.press("Enter")
    expect(box.get_by_role("log")).to_be_focused()
    expect(box.locator("#log-rows .log-line").first).to_be_visible()
    expect(page).to_have_url(re.compile(f"log={session['id']}"))
    assert visitor.accessibility_faults() == []
    page.keyboard.press("Escape")
    expect(box).not_to_be_visible()
    expect(page).not_to_have_url(re.compile("log="))
    expect(opener).to_be_focused()
    page.go_forward()
    expect(box.locator("#log-rows .log-line").first).to_be_visible()
    page.go_back()
    expect(box).not_to_be_visible()
    assert page.evaluate("window.stayed")


def test_the_log_of_a_kernel_opens_over_the_panel_and_comes_back_with_its_address(
    walk: Visit, session: dict[str, str]
) -> None:
    visitor = _at_the_list(walk)
    page = visitor.page
    page.locator("#session-list").get_by_role("link", name="talks", exact=True).click()
    drawer = page.get_by_role("dialog", name="talks", exact=True)
    drawer.get_by_role("link", name="Log of sub1").click()
    box = page.get_by_role("dialog", name=re.compile("^Log talks"))
    expect(box.get_by_label("Kernel")).to_have_value(re.compile("."))
    assert box.get_by_label("Kernel").evaluate("(each) => each.selectedOptions[0].textContent") == "sub1"
    visitor.reload()
    expect(box.locator("#log-rows .log-line").first).to_be_visible()
    assert box.get_by_label("Kernel").evaluate("(each) => each.selectedOptions[0].textContent") == "sub1"
    assert visitor.overflow_on_a_phone() <= 0
    box.get_by_role("button", name="Close").click()
    expect(box).not_to_be_visible()
    expect(drawer).to_be_visible()
    expect(page).to_have_url(re.compile(rf"\?session={session['id']}$"))


def test_neither_long_names_nor_news_lie_over_anything(walk: Visit, campus: Campus, session: dict[str, str]) -> None:
    visitor = _at_the_list(walk)
    page = visitor.page
    failed = campus.alice.launch("has-failed", image="tiny", type="batch", startup_command="exit 3")
    campus.alice.wait_for(failed["id"], "TERMINATED")
    visitor.go("/dashboard/")
    expect(page.locator(".dashboard table.rows").filter(has_text=SCRIPT)).to_be_visible()
    wider = "(cards) => cards.filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.innerText)"
    assert page.locator(".dashboard .card").evaluate_all(wider) == []
    visitor.go("/sessions/new/")
    news = page.locator("#note-cards .tone-bad").first
    expect(news).to_be_visible()
    card, button = news.bounding_box(), page.locator(".launch-bar [data-go=next]").bounding_box()
    assert card and button and card["y"] >= button["y"] + button["height"]


def test_on_a_phone_a_card_is_not_over_the_filter_and_what_has_ended_begins_at_the_edge(
    walk: Visit, campus: Campus
) -> None:
    failed = campus.alice.launch("fails-early", image="tiny", type="batch", startup_command="exit 3")
    campus.alice.wait_for(failed["id"], "TERMINATED")
    visitor = _at_the_list(walk)
    page = visitor.page
    with visitor.on_a_phone():
        visitor.go("/?view=finished")
        cards = page.locator("#note-cards .note-card").first
        expect(cards).to_be_visible()
        page.get_by_text("Filter", exact=True).click()
        expect(cards).to_be_hidden()
        page.get_by_text("Filter", exact=True).click()
        expect(cards).to_be_visible()
        row = page.locator(f"tr[data-session='{failed['id']}']")
        name, status = row.locator(".row-link bdi").bounding_box(), row.locator(".status").first.bounding_box()
        assert name and status and abs(name["x"] - status["x"]) < 1


def test_the_name_is_not_squeezed_and_the_keys_of_the_terminal_are_told(walk: Visit, campus: Campus) -> None:
    name = "a-name-of-ordinary-length-for-people"
    made = campus.alice.launch(name, image="torch-2.4", resources=MEASURED)
    campus.alice.wait_until_running(made["id"])
    visitor = _at_the_list(walk)
    page = visitor.page
    page.get_by_role("link", name=name, exact=True).first.click()
    heading = page.get_by_role("heading", name=name)
    expect(heading).to_be_visible()
    assert heading.locator("bdi").evaluate("(name) => name.getClientRects().length") == 1, "in one line"
    visitor.go(f"/sessions/{made['id']}/#terminal")
    keys = page.get_by_role("button", name="Keys")
    keys.click()
    expect(page.get_by_role("dialog", name="Keys of the terminal")).to_contain_text("Drag over text to copy it")
    assert visitor.faults_in_every_light() == []
    page.keyboard.press("Escape")
    expect(keys).to_be_focused()
    campus.alice.end(made["id"])


def test_no_column_moves_when_a_session_begins_to_run(walk: Visit, campus: Campus, session: dict[str, str]) -> None:
    page = _at_the_list(walk).page
    row = f"tr[data-session='{session['id']}']"
    expect(page.locator(row).get_by_role("link", name="Log of talks")).to_be_visible()
    # All at once, and found in the same step: a list that is renewed meanwhile has other elements.
    before, after = page.evaluate(
        """(place) => {
      const row = document.querySelector(place);
      const actions = [...row.closest("table").tHead.querySelectorAll("th")].at(-1);
      const placed = () => JSON.stringify(actions.getBoundingClientRect());
      const before = placed();
      row.querySelector(".cell-actions").replaceChildren();
      return [before, placed()];
    }""",
        row,
    )
    assert before == after


def test_a_reason_is_read_in_lines_however_many_columns_there_are(walk: Visit, session: dict[str, str]) -> None:
    page = _at_the_list(walk).page
    row = f"tr[data-session='{session['id']}']"
    expect(page.locator(row).get_by_role("link", name="Log of talks")).to_be_visible()
    wide = page.evaluate(
        """(place) => {
      const row = document.querySelector(place);
      const cells = Array.from({ length: 9 }, () => document.createElement("td"));
      for (const cell of cells) cell.textContent = "a".repeat(16);
      row.querySelector(".cell-slots").after(...cells);
      return row.querySelector(".cell-status").getBoundingClientRect().width;
    }""",
        row,
    )
    assert wide >= 13 * 16


def _at_the_list(walk: Visit) -> Visitor:
    visitor = walk(ALICE)
    expect(visitor.page.locator("#live-mark")).to_have_text("Live")  # its scripts have started
    return visitor


def _drag_to_the_front(page: Page, name: str) -> None:
    """Take hold of a column's name and move it over the first one, without letting go."""
    lines = page.locator("#column-order li")
    lines.filter(has=page.get_by_role("checkbox", name=name)).locator("[data-name]").hover()
    page.mouse.down()
    first = lines.first.bounding_box()
    assert first
    for height in (first["height"] - 3, 3):
        page.mouse.move(first["x"] + 40, first["y"] + height, steps=8)
