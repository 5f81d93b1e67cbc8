"""What a terminal draws, looked at as pixels: no platform is needed, only its scripts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.chromium import Chromium, Manner

pytestmark = pytest.mark.browser
_STATIC = Path(__file__).resolve().parents[2] / "static"
_SCRIPTS = ("xterm", "xterm-fit", "xterm-webgl", "xterm-search", "xterm-web-links", "xterm-unicode11")
_PAGE = "<!doctype html><html lang=en><style>body {{ margin: 0 }} .screen {{ width: 900px; height: 600px }}</style>{}"
_SIZES = range(9, 29)  # all that the buttons for larger and smaller letters give
_LETTERS = ("_", "Á")  # the lowest and the highest


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The folder of the portal's scripts and styles, as a page of its own origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=_STATIC)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def page(chromium: Chromium, address: str) -> Iterator[Page]:
    """A screen as a terminal has it, with nothing on it."""
    manner = Manner("light", True, False)
    context = chromium.lend(manner)
    page = context.new_page()
    page.goto(f"{address}/js/screen.js")
    names = ("vendor/tabler.min.css", "vendor/xterm.css", "css/theme.css", "css/session.css")
    styles = "".join(f'<link rel=stylesheet href="/{name}">' for name in names)
    page.set_content(_PAGE.format(styles + "<div class=screen></div>"))
    for name in (*(f"vendor/{script}" for script in _SCRIPTS), "js/screen"):
        page.add_script_tag(url=f"/{name}.js")
    page.evaluate("window.screen1 = portal.openScreen(document.querySelector('.screen'), { cursorBlink: false })")
    yield page
    chromium.take_back(context, manner, address)


def ink_of(page: Page, text: str) -> bytes:
    """Return the picture of the row on which a text stands, without the cursor."""
    page.evaluate(
        "(text) => new Promise((done) => screen1.terminal.write(`\\x1bc\\x1b[?25l\\r\\n${text}`, () =>"
        " requestAnimationFrame(() => requestAnimationFrame(done))))",
        text,
    )
    row = page.locator(".xterm-rows > div").nth(1)
    return row.screenshot()


def test_every_letter_is_seen_at_every_size(page: Page) -> None:
    unseen = []
    for size in _SIZES:
        page.evaluate("(size) => { screen1.terminal.options.fontSize = size; screen1.refit(); }", size)
        blank = ink_of(page, " " * 10)
        unseen += [(size, letter) for letter in _LETTERS if ink_of(page, letter * 10) == blank]
    assert not unseen


def test_every_row_is_whole_and_a_press_of_the_mouse_meets_the_one_under_it(page: Page) -> None:
    """The rows are as high as they are drawn, so that programs and selections get the place that was pressed."""
    page.evaluate(
        "screen1.terminal.write('\\x1bc' + Array.from({ length: 20 }, (_, row) => `row-${row}`).join('\\r\\n'))"
    )
    for number in (0, 7, 19):
        box = page.locator(".xterm-rows > div").nth(number).bounding_box()
        assert box
        page.mouse.dblclick(box["x"] + 4, box["y"] + box["height"] - 1)
        assert page.evaluate("screen1.terminal.getSelection()") == f"row-{number}"
    rows = page.locator(".xterm-rows > div")
    assert rows.count() == page.evaluate("screen1.terminal.rows")
    last, place = rows.last.bounding_box(), page.locator(".screen").bounding_box()
    assert last and place
    assert last["y"] + last["height"] <= place["y"] + place["height"]
