"""The tools around a terminal in Chromium, with a shell of the test's own behind the socket: no platform is needed."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.template.loader import render_to_string
from playwright.sync_api import Page, Route, WebSocketRoute, expect

from backendai.domain.compute.models import ComputeSession
from tests.browser.chromium import Chromium, Manner
from tests.browser.visitor import _AXE, wait_until

pytestmark = [pytest.mark.browser]
_ORIGIN = "https://portal.test"  # a secure one: others have no clipboard
_STYLES = (
    "vendor/tabler.min.css",
    "vendor/xterm.css",
    "css/theme.css",
    "css/pieces.css",
    "css/forms.css",
    "css/session.css",
)
_SCRIPTS = ("fit", "webgl", "search", "web-links", "unicode11")
_OWN = ("theme", "page", "steady-socket", "screen", "recording", "terminal")
_FAULTS = """async () => (await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa"] })).violations
  .flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html}`))"""


def document() -> str:
    """Return a page with the terminal as the portal draws it."""
    session = ComputeSession(name="mine")
    terminal = render_to_string("web/_terminal.html", {"session": session, "kernels": []})
    styles = "".join(f'<link rel="stylesheet" href="/static/{name}">' for name in _STYLES)
    paths = ["vendor/xterm.js", *(f"vendor/xterm-{name}.js" for name in _SCRIPTS), *(f"js/{name}.js" for name in _OWN)]
    scripts = "".join(f'<script defer src="/static/{path}"></script>' for path in paths)
    begin = '<script defer src="/begin.js"></script>'
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Terminal</title>'
    body = f"<head>{head}{styles}{scripts}{begin}</head><body><main>{terminal}</main></body>"
    return f'<!doctype html><html lang="en" class="has-js">{body}</html>'


def answer(route: Route) -> None:
    """Send the page, and the files of the portal that it asks for."""
    path = urlsplit(route.request.url).path
    file = Path(settings.BASE_DIR) / path.lstrip("/")
    if path.startswith("/static/") and file.is_file():
        route.fulfill(path=file)
    elif path == "/begin.js":
        route.fulfill(content_type="text/javascript", body='portal.showTerminal("RUNNING");')
    elif path.startswith("/sessions/"):
        route.fulfill(content_type="text/html", body=document())
    else:
        route.fulfill(status=404, body="")


class Shells:
    """What each shell has said; a shell says again what it hears, and all of it to a reader who comes back."""

    def __init__(self) -> None:
        self.said: dict[str, bytes] = {}
        self.sought: list[dict[str, str]] = []
        self.sockets: list[WebSocketRoute] = []

    def serve(self, socket: WebSocketRoute) -> None:
        """Answer one socket."""
        name = parse_qs(urlsplit(socket.url).query).get("shell", ["1"])[0]
        self.sockets.append(socket)
        self.said.setdefault(name, f"this is shell {name}$ ".encode())

        def hear(message: str | bytes) -> None:
            if isinstance(message, bytes):
                heard = message.replace(b"\r", b"\r\n")
                self.said[name] += heard
                socket.send(heard)
            elif (said := json.loads(message))["type"] == "find":
                self.sought.append(said)

        socket.on_message(hear)
        socket.send(json.dumps({"type": "ready"}))
        socket.send(b"\x1bc" + self.said[name])


@pytest.fixture
def shells() -> Shells:
    return Shells()


@pytest.fixture
def terminal(chromium: Chromium, shells: Shells) -> Iterator[Page]:
    """The page of somebody whose terminal is connected; it leaves no error in the browser."""
    manner = Manner("light", scripts=True, on_phone=False)
    context = chromium.lend(manner)
    context.route("**/*", answer)
    context.route_web_socket("**/ws/**", shells.serve)
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{_ORIGIN}/sessions/1/")
    expect(page.locator("#terminal-state")).to_have_text("Connected")
    yield page
    assert faults == []
    context.unroute_all()
    context.close()


def screen(page: Page) -> Any:
    return expect(page.locator("#terminal-box .xterm-rows"))


def write(page: Page, text: str) -> None:
    page.locator("#terminal-box textarea").focus()
    page.keyboard.type(text)


@pytest.mark.core
def test_shells_are_apart_and_words_are_found(terminal: Page) -> None:
    page = terminal
    write(page, "one needle here")
    screen(page).to_contain_text("this is shell 1$ one needle here")
    page.get_by_label("Shell", exact=True).select_option("2")
    screen(page).to_contain_text("this is shell 2$")
    screen(page).not_to_contain_text("needle")
    page.get_by_label("Shell", exact=True).select_option("1")
    screen(page).to_contain_text("one needle here")
    write(page, "")
    page.keyboard.press("Control+Shift+F")
    words = page.locator("#terminal-words")
    expect(words).to_be_focused()
    words.fill("needle")
    words.press("Enter")
    expect(page.locator("#terminal-box .xterm-selection > div").first).to_be_attached()
    page.add_script_tag(content=_AXE)
    assert page.evaluate(_FAULTS) == []
    words.press("Escape")
    expect(page.locator("#terminal-find")).to_be_hidden()
    expect(page.locator("#terminal-box textarea")).to_be_focused()


def test_words_in_the_alternate_screen_are_looked_for_by_the_shell(terminal: Page, shells: Shells) -> None:
    page = terminal
    shells.said["2"] = b"\x1b[?1049hall that is visible"
    page.get_by_label("Shell", exact=True).select_option("2")
    screen(page).to_contain_text("all that is visible")
    page.get_by_role("button", name="Find in the terminal").click()
    words = page.locator("#terminal-words")
    words.fill("far above")
    words.press("Enter")
    words.press("Enter")
    page.get_by_role("button", name="Next").click()
    words.fill("elsewhere")
    words.press("Enter")
    words.press("Escape")
    expect(page.locator("#terminal-find")).to_be_hidden()
    sought = [(one["does"], one.get("text", "")) for one in shells.sought]
    assert sought == [
        ("find", "far above"), ("previous", "far above"), ("next", "far above"), ("find", "elsewhere"), ("end", ""),
    ]  # fmt: skip


def test_dragging_copies_and_ctrl_c_copies_only_what_is_marked(terminal: Page, shells: Shells) -> None:
    page = terminal
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    clipboard, note = "navigator.clipboard.readText()", page.locator("#terminal-copied")
    shells.said["2"] = b"take this line"
    page.get_by_label("Shell", exact=True).select_option("2")
    screen(page).to_contain_text("take this line")
    row = page.locator("#terminal-box .xterm-rows > div").first.bounding_box()
    assert row is not None
    middle = row["y"] + row["height"] / 2
    page.mouse.move(row["x"] + 1, middle)
    page.mouse.down()
    page.mouse.move(row["x"] + row["width"] - 2, middle, steps=4)
    page.mouse.up()
    expect(note).to_have_text("Copied")
    assert page.evaluate(clipboard).strip() == "take this line"
    page.evaluate("navigator.clipboard.writeText('')")
    page.keyboard.press("Control+C")
    expect(note).to_have_text("Copied")
    assert page.evaluate(clipboard).strip() == "take this line"
    assert shells.said["2"] == b"take this line", "nothing was interrupted"
    page.keyboard.press("Control+C")
    wait_until(page, lambda: shells.said["2"].endswith(b"\x03"), "without a mark it interrupts")
    # A program that holds the mouse, as tmux does, copies what it was dragged over.
    page.mouse.click(row["x"] + 5, middle + 60)
    sent = b"\x1b]52;c;" + b64encode("of tmux: é".encode()) + b"\x07"
    shells.sockets[-1].send(sent)
    expect(note).to_have_text("Copied")
    assert page.evaluate(clipboard) == "of tmux: é"
    page.evaluate("navigator.clipboard.writeText('')")
    interrupts = shells.said["2"].count(b"\x03")
    page.keyboard.press("Control+C")
    wait_until(page, lambda: page.evaluate(clipboard) == "of tmux: é", "Ctrl-C just after it copies again")
    assert shells.said["2"].count(b"\x03") == interrupts
    shells.sockets[-1].send(b"\x1b]52;c;" + b64encode(b"stolen") + b"\x07drawn")
    screen(page).to_contain_text("drawn")
    assert page.evaluate(clipboard) == "of tmux: é", "one press, one copy"


def test_the_bar_fits_a_phone_and_a_window_of_its_own_holds_the_terminal_alone(terminal: Page) -> None:
    page = terminal
    page.set_viewport_size({"width": 375, "height": 760})
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    tools = page.locator("#terminal-box .screen-tools")
    tops = "(bar) => new Set([...bar.children].filter((one) => one.offsetParent).map((one) => one.offsetTop)).size"
    assert tools.evaluate(tops) == 1, "they are one row, which scrolls"
    page.get_by_role("button", name="Full screen").scroll_into_view_if_needed()
    expect(page.get_by_role("button", name="Full screen")).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 1280, "height": 800})
    with page.context.expect_page() as opened:
        page.locator("#terminal-window").click()
    expect(opened.value.locator("#terminal-box.is-full")).to_be_visible()
    expect(opened.value.locator("#terminal-state")).to_have_text("Connected")


def test_a_terminal_is_recorded_and_replayed_in_the_browser_alone(terminal: Page, tmp_path: Path) -> None:
    page = terminal
    page.get_by_role("button", name="Record", exact=True).click()
    write(page, "recorded é\r")
    screen(page).to_contain_text("recorded é")
    page.set_viewport_size({"width": 1000, "height": 800})
    with page.expect_download() as download:
        page.get_by_role("button", name="Stop and save").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name.startswith("mine-") and file.suffix == ".cast"
    head, *events = [json.loads(line) for line in file.read_text().splitlines()]
    assert (head["version"], head["term"]["cols"] > 20) == (3, True)
    assert "recorded é\r\n" in "".join(text for _, kind, text in events if kind == "o")
    assert all(pause >= 0 for pause, _, _ in events)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay a recording")
    dialog.get_by_label("File").set_input_files(file)
    expect(dialog.locator(".xterm-rows")).to_contain_text("recorded é")
    page.add_script_tag(content=_AXE)
    assert page.evaluate(_FAULTS) == []
    (tmp_path / "other.cast").write_text("no JSON")
    dialog.get_by_label("File").set_input_files(tmp_path / "other.cast")
    expect(dialog.get_by_role("alert")).to_contain_text("no recording of a terminal")
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []
