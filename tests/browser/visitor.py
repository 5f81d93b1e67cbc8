"""Somebody in front of a browser, who notices what goes wrong behind the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Response, expect, sync_playwright

from tests.browser.people import PASSWORD
from tests.system.platform import Platform

RESOURCES = "Environments & resource allocation"
REVIEW = "Confirm and launch"
_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_AXE = Path(__file__).parent / "vendor" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
# A colour on its way to another is none that anybody reads.
_AT_REST = """() => new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame)).then(() =>
    document.getAnimations().forEach((one) => one.effect.getComputedTiming().endTime < 1e6 && one.finish()))"""
_PATIENCE_MS = 15_000
_TRIES = 5
# Every container that starts or ends gives the machine another network interface, and Chromium then drops requests.
_NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
# Leaving a page ends its requests, of which htmx complains; so does a newer question to an older one.
_ABORTED = re.compile("htmx:(sendAbort|afterRequest),")
_PHONE = {"width": 375, "height": 760}
# Nothing that keeps to the lower edge of the screen covers anything here.
_TALL_PHONE = {"width": 375, "height": 6000}
_DESK = {"width": 1280, "height": 800}


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Run the machine's Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


def run_on(platform: Platform, name: str, module: str = "make_people") -> str:
    """Run a function of ``make_people`` or its like on a platform's database; returns the last line that it printed."""
    done = platform.manage("shell", "--no-imports", "-c", f"from tests.browser.{module} import {name}; {name}()")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


class Visitor:
    """A browser context of its own. ``complaints`` gathers errors of scripts, policy violations and missing files."""

    def __init__(
        self, browser: Browser, url: str, *, theme: str = "light", scripts: bool = True, on_phone: bool = False
    ) -> None:
        self._url = url
        self.complaints: list[str] = []
        self._was_cut_off, self._cut_offs = False, 0
        size: Any = _PHONE if on_phone else _DESK
        self._context = browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=scripts)  # type: ignore[arg-type]
        self._context.set_default_timeout(_PATIENCE_MS)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error on {self.page.url}: {error}"))
        self.page.on("response", self._look)

    def go(self, path: str) -> Response | None:
        """Open a page of the portal; once more when the machine's network changed meanwhile."""
        answer: Response | None = None
        for _ in range(_TRIES):
            self._was_cut_off = False
            try:
                answer = self.page.goto(urljoin(self._url, path))
            except Error as error:
                if _NETWORK_CHANGED not in error.message:
                    raise
                continue
            if not self._was_cut_off:
                break
        return answer

    def sign_in(self, email: str) -> Visitor:
        """Sign in with the form."""
        self.go("/login/")
        self.page.get_by_label("E-mail address").fill(email)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
        return self

    def type(self, command: str) -> None:
        """Type a line into the terminal once it is connected."""
        expect(self.page.locator("#terminal-state")).to_have_text("Connected")
        self.page.locator("#terminal-box textarea").focus()
        self.page.keyboard.type(command + "\n")

    def step(self, name: str) -> None:
        """Go to a step of the launcher."""
        self.page.get_by_role("navigation", name="Steps").get_by_role("link", name=name).click()
        expect(self.page.get_by_role("heading", name=name, level=2)).to_be_focused()

    def launch(self, part: str = "") -> str:
        """Launch what the form says, from whichever step, and look at this part of the session; returns its id."""
        self.step(REVIEW)
        self.page.get_by_role("button", name="Launch", exact=True).click()
        dialog = self.page.get_by_role("dialog", name="No folder is mounted")
        dialog.get_by_role("button", name="Start", exact=True).click()
        self.page.wait_for_url("**/?launched=*")
        session_id = self.page.url.partition("launched=")[2].partition(",")[0]
        self.go(f"/sessions/{session_id}/{part}")
        return session_id

    @property
    def screen(self) -> Locator:
        """The lines that the terminal shows."""
        return self.page.locator("#terminal-box .xterm-rows")

    @property
    def status(self) -> Locator:
        """The status beside the session's name."""
        return self.page.locator("#session-state .status").first

    def accessibility_faults(self, *, colours_only: bool = False) -> list[str]:
        """Return what the WCAG 2.2 AA rules of axe find wrong with the page as it is now."""
        self.page.evaluate("scrollTo(0, 0)")  # what the head of the page half covers counts as small
        self.page.evaluate(_AT_REST)
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(_AXE.read_text())
        only = {"type": "rule", "values": ["color-contrast"]} if colours_only else {"type": "tag", "values": _RULES}
        options: dict[str, Any] = {"runOnly": only, "resultTypes": ["violations"]}
        found = self.page.evaluate("(options) => axe.run(document, options)", options)
        return [
            f"{fault['id']}: {json.dumps(node['html'])} {node['failureSummary']}"
            for fault in found["violations"]
            for node in fault["nodes"]
        ]

    def faults_in_every_light(self) -> list[str]:
        """Return what is wrong with the page as it is now, light and dark, on a desk and on a phone."""
        found = [f"light: {fault}" for fault in self.accessibility_faults()]
        with self.dark():
            found += [f"dark: {fault}" for fault in self.accessibility_faults(colours_only=True)]
        with self.on_a_phone(_TALL_PHONE):
            found += [f"on a phone: {fault}" for fault in self.accessibility_faults()]
            with self.dark():
                found += [f"dark on a phone: {fault}" for fault in self.accessibility_faults(colours_only=True)]
            if (overflow := self._overflow()) > 0:
                found.append(f"{overflow} pixels wider than a phone")
        return found

    def overflow_on_a_phone(self) -> int:
        """Return by how many pixels the page is wider than a screen of 375."""
        with self.on_a_phone():
            return self._overflow()

    @contextmanager
    def on_a_phone(self, size: dict[str, int] = _PHONE) -> Iterator[None]:
        """Look at the page through a small screen."""
        self.page.set_viewport_size(size)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self.page.set_viewport_size(_DESK)  # type: ignore[arg-type]

    @contextmanager
    def dark(self) -> Iterator[None]:
        """Look at the page as somebody whose system is dark."""
        self.page.emulate_media(color_scheme="dark")
        try:
            yield
        finally:
            self.page.emulate_media(color_scheme="light")

    def leave(self) -> None:
        """Close the browser's windows; fails when something went wrong behind the pages."""
        self._context.close()
        if self._cut_offs:  # htmx tells by itself of a request that the machine's network dropped
            self.complaints = [each for each in self.complaints if "htmx:sendError" not in each]
        assert not self.complaints, "\n".join(self.complaints)

    def _overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def _listen(self, message: ConsoleMessage) -> None:
        if _NETWORK_CHANGED in message.text:
            self._was_cut_off = True
            self._cut_offs += 1
            return
        if _ABORTED.match(message.text):
            return
        # A refused address is told by the response too, with more to go by.
        if message.type in ("error", "warning") and not re.match("Failed to load resource: the server", message.text):
            self.complaints.append(f"{message.type} on {self.page.url}: {message.text}")

    def _look(self, response: Response) -> None:
        if response.status >= 400 and (response.request.resource_type != "document" or response.status >= 500):
            self.complaints.append(f"{response.status} for {response.url} on {self.page.url}")
