"""News of sessions never lie over anything that can be pressed, and many are dealt with by one click."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ADMIN, ALICE
from tests.browser.visitor import Visitor, run_on, wait_until
from tests.patience import patient, until

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.timeout(420)]
WARNED_WITHIN_MS = patient(120_000)
DESK, PHONE = {"width": 1366, "height": 768}, {"width": 375, "height": 760}
PAGES = ("/", "/?view=finished", "/dashboard/", "/sessions/new/", "/sessions/new/?step=2", "/sessions/new/recent/",
         "/account/", "/account/keys/", "/account/security/", "/account/environment/")  # fmt: skip
# What can be pressed, brought into sight as the keyboard brings it, and pressed in its middle: what is there?
_COVERED = """() => {
  const news = document.getElementById("note-cards"), found = [];
  const all = "a[href], button, input:not([type=hidden]), select, textarea, summary";
  for (const each of document.querySelectorAll(all)) {
    if (news.contains(each) || !each.checkVisibility({ checkVisibilityCSS: true })) continue;
    each.scrollIntoView({ block: "nearest", behavior: "instant" });
    const box = each.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (top && news.contains(top)) found.push(each.outerHTML.slice(0, 120));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def news(campus: Campus) -> Iterator[list[str]]:
    """Three failed sessions of Alice's and three that an idle checker has warned of; returns the ids of the latter."""
    batch = {"image": "tiny", "type": "batch", "startup_command": "exit 3"}
    failed = [campus.alice.launch(f"failed-{number}", **batch)["id"] for number in range(3)]
    resources = {"cpu": "0.5", "mem": "64m"}
    idle = [campus.alice.launch(f"idle-{n}", image="torch-2.4", resources=resources)["id"] for n in range(3)]
    for one in failed:
        campus.alice.wait_for(one, "TERMINATED")
    for one in idle:
        campus.alice.wait_until_running(one)
    run_on(campus.platform, "make_idle", "make_news")
    yield idle
    run_on(campus.platform, "drop_idle", "make_news")
    campus.alice.end(*idle)


def _at_the_news(walk: Visit, size: dict[str, int]) -> Visitor:
    visitor = walk(ALICE)
    page = visitor.page
    page.set_viewport_size(size)  # type: ignore[arg-type]
    visitor.go("/")
    expect(page.locator(".idle-sign")).to_have_count(3, timeout=WARNED_WITHIN_MS)
    expect(page.locator(".note-card")).to_have_count(3)
    expect(page.locator(".note-card[open]")).to_have_count(0, timeout=patient(15_000))
    return visitor


@pytest.mark.long
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_that_can_be_pressed_lies_under_the_news(walk: Visit, news: list[str], size: dict[str, int]) -> None:
    visitor = _at_the_news(walk, size)
    page = visitor.page
    for path in (*PAGES, f"/sessions/{news[0]}/"):
        visitor.go(path)
        expect(page.locator(".note-card").first).to_be_visible()
        expect(page.locator(".note-card[open]")).to_have_count(0, timeout=patient(15_000))
        assert page.evaluate(_COVERED) == [], path
        height = page.locator("#note-cards").bounding_box()
        assert height and height["height"] < 48, "one line"
    bar = page.locator(".launch-bar")
    visitor.go("/sessions/new/")
    expect(page.locator(".note-card").first).to_be_visible()
    lower, line = bar.bounding_box(), page.locator("#note-cards").bounding_box()
    assert lower and line and abs(lower["y"] + lower["height"] - line["y"]) <= 1, "the bar stands on the line"
    page.locator("#note-cards").evaluate("(news) => news.replaceChildren()")
    height_of_news = "getComputedStyle(document.documentElement).getPropertyValue('--news-height')"
    until(lambda: page.evaluate(height_of_news) == "0px", 10, "the line of news has no height")
    lower = bar.bounding_box()
    assert lower and lower["y"] + lower["height"] > line["y"], "and lower without it"
    if size is PHONE:
        assert abs(lower["y"] + lower["height"] - size["height"]) <= 1, "at the edge"


def test_a_badge_unfolds_and_folds_with_the_keyboard_and_by_itself_over_nothing(walk: Visit, news: list[str]) -> None:
    visitor = _at_the_news(walk, DESK)
    page = visitor.page
    card = page.locator(".note-card").first
    card.locator("summary").press("Enter")
    expect(card.locator(".note-text").first).to_contain_text(re.compile(r"ends at .* \(in .*Unused since"))
    assert visitor.accessibility_faults() == []
    page.keyboard.press("Escape")
    expect(card.locator(".note-panel")).to_be_hidden()
    expect(card.locator("summary")).to_be_focused()
    # As if it were new: over free room it unfolds, over a button it does not.
    fresh = """(card) => {
      card.dataset.since = new Date().toISOString();
      document.getElementById("note-cards").dispatchEvent(new CustomEvent("htmx:afterSettle", { detail: {} }));
      return card.open;
    }"""
    page.locator("main").evaluate("(main) => { main.replaceChildren(); document.activeElement.blur(); }")
    assert card.evaluate(fresh) is True
    expect(card.locator(".note-panel")).to_be_hidden(timeout=patient(12_000))
    page.locator("main").evaluate(
        "(main) => main.append(...Array.from({ length: 60 }, () => document.createElement('button')))"
    )
    page.locator("main").evaluate("(main) => [...main.children].forEach((each) => (each.className = 'btn w-100'))")
    assert card.evaluate(fresh) is False


@pytest.mark.ci
@pytest.mark.core
def test_terminate_and_start_again_stand_in_the_rows_and_leave_the_list_where_it_is(
    walk: Visit, campus: Campus, news: list[str]
) -> None:
    visitor = _at_the_news(walk, DESK)
    page = visitor.page
    made = campus.alice.launch("ends-in-place", image="torch-2.4", resources={"cpu": "0.5", "mem": "64m"})
    campus.alice.wait_until_running(made["id"])
    visitor.go("/?type=interactive&q=ends-in-place")
    page.evaluate("window.stayed = true")
    # On a slow machine a card tells of its start, with the same link.
    opener = page.locator("#session-list").get_by_role("link", name="Terminate ends-in-place")
    expect(opener).to_have_attribute("title", "Terminate")
    opener.click()
    dialog = page.get_by_role("dialog", name="Terminate ends-in-place?")
    expect(dialog).to_be_visible()
    assert visitor.accessibility_faults() == []
    dialog.get_by_role("button", name="Terminate").click()
    expect(dialog).not_to_be_visible()
    status = page.locator(f"tr[data-session='{made['id']}'] .cell-status")
    # It is said to end, or has ended already and left the list of what is live.
    expect(status.filter(has_not_text=re.compile("Terminat"))).to_have_count(0)
    expect(page.locator("#session-list")).to_be_visible()
    assert page.url.endswith("/?type=interactive&q=ends-in-place") and page.evaluate("window.stayed")
    campus.alice.wait_for(made["id"], "TERMINATED")
    visitor.go("/?view=finished")
    again = page.get_by_role("link", name="Launch again ends-in-place")
    expect(again).to_have_attribute("href", re.compile(f"like={made['id']}$"))


def test_a_swap_of_a_field_whose_style_a_script_has_set_breaks_no_policy(walk: Visit, news: list[str]) -> None:
    visitor = _at_the_news(walk, DESK)
    visitor.page.evaluate("""async () => {
      const list = document.getElementById("session-list");
      for (const one of list.querySelectorAll("[id]")) { one.style.width = "1px"; one.style.width = ""; }
      const done = new Promise((resolve) => list.addEventListener("htmx:afterSettle", resolve, { once: true }));
      htmx.trigger(list, "look-again");
      await done;
    }""")
    visitor.page.wait_for_timeout(100)
    assert visitor.complaints == []


def test_all_are_kept_running_by_one_click_and_all_cards_closed_by_another(walk: Visit, news: list[str]) -> None:
    visitor = _at_the_news(walk, DESK)
    page = visitor.page
    # News may renew the cards while the answer is under way.
    page.evaluate("""() => document.addEventListener("htmx:beforeOnLoad", (event) => {
      if (event.detail.elt.matches("#note-cards form")) event.detail.elt.remove();
    })""")
    page.locator("#note-cards").get_by_role("button", name="Keep all running").click()
    expect(page.locator("#messages")).to_contain_text("3 sessions keep running.")
    expect(page.locator(".idle-sign")).to_have_count(0)
    expect(page.locator("#note-cards .note-card")).to_have_count(3)
    page.locator("#note-cards").get_by_role("button", name="Close all").click()
    expect(page.locator("#note-cards .note-card")).to_have_count(0)
    expect(page.locator("#note-cards")).to_be_hidden()


def test_every_visitor_complains_of_what_a_page_does_wrong_behind_the_scenes(walk: Visit) -> None:
    visitor = walk(ADMIN)
    visitor.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')")
    visitor.page.evaluate("console.error('it is broken')")
    visitor.page.evaluate("setTimeout(() => { throw new Error('thrown') })")
    for said in ("inline style", "it is broken", "thrown"):
        wait_until(visitor.page, lambda said=said: said in "\n".join(visitor.complaints), said)
    visitor.complaints.clear()
