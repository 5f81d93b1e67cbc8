"""Somebody in front of a browser, who notices what goes wrong behind the page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Response, expect

from tests.browser.chromium import DESK, PHONE, Chromium, Manner
from tests.browser.people import PASSWORD
from tests.patience import patient
from tests.system.bare import Start
from tests.system.platform import Platform

RESOURCES = "Image & resource allocation"
REVIEW = "Confirm and launch"
_AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
_KNOWN = (Path(__file__).parent / "known.js").read_text()
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
# What the head of the page half covers counts as small, and a colour on its way to another is none that anybody reads.
_LOOK = """async (options) => {
  if (!("axe" in window)) return null;
  scrollTo({ top: 0, behavior: "instant" });
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  document.getAnimations().forEach((one) => one.effect.getComputedTiming().endTime < 1e6 && one.finish());
  const known = (window.looked?.known ?? []).filter((one) => one.isConnected);
  return (await axe.run(known.length ? { exclude: known } : document, options)).violations;
}"""
_TRIES = 5
# Every container that starts or ends gives the machine another network interface, and Chromium then drops requests.
_NETWORK_CHANGED, _OF_THE_BROWSER = "ERR_NETWORK_CHANGED", "chrome-error:"
# Leaving a page ends its requests, of which htmx complains; so does a newer question to an older one.
_ABORTED = re.compile("htmx:(sendAbort|afterRequest),")
# Nothing that keeps to the lower edge of the screen covers anything here.
_TALL_PHONE = {"width": 375, "height": 6000}


def run_on(platform: Platform | Start, name: str, module: str = "make_people") -> str:
    """Run a function of ``make_people`` or its like on a platform's database; returns the last line that it printed."""
    done = platform.manage("shell", "--no-imports", "-c", f"from tests.browser.{module} import {name}; {name}()")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def wait_until(page: Page, is_so: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Wait while the page goes on, which it does not while this thread sleeps."""
    deadline = time.monotonic() + patient(seconds)
    while not is_so():
        assert time.monotonic() < deadline, what
        page.wait_for_timeout(50)


class Visitor:
    """A browser context of its own. ``complaints`` gathers errors of scripts, policy violations and missing files."""

    def __init__(
        self, chromium: Chromium, url: str, *, theme: str = "light", scripts: bool = True, on_phone: bool = False
    ) -> None:
        self._chromium, self._url = chromium, url
        self.complaints: list[str] = []
        self._cut_offs = 0
        self._manner = Manner(theme, scripts, on_phone)
        self._context = chromium.lend(self._manner)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error on {self.page.url}: {error}"))
        self.page.on("response", self._look)

    def go(self, path: str) -> Response | None:
        """Open a page of the portal; once more when the machine's network changed meanwhile."""
        address = urljoin(self._url, path)
        return self._come(address, lambda: self.page.goto(address))

    def reload(self) -> Response | None:
        """Ask for the page once more, and again when the machine's network changed meanwhile."""
        return self._come(self.page.url, self.page.reload)

    def sign_in(self, email: str, *, afresh: bool = False) -> Visitor:
        """Come to the list of sessions as this person: with the form, unless they have used it before and what they
        were given still counts. ``afresh``: with the form in any case."""
        known = [] if afresh else self._chromium.signed_in.get((self._url, email), [])
        if known:
            self._context.add_cookies(known)
            self.go("/")
        if not known or self.page.get_by_label("Password").count():
            self._fill_in_who(email)
        expect(self.page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
        self._chromium.signed_in[self._url, email] = self._context.cookies()
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
        dialog.get_by_role("button", name="Launch session", exact=True).click()
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

    @property
    def was_cut_off(self) -> bool:
        """Whether the browser has dropped a request because the machine's network changed."""
        return self._cut_offs > 0

    def accessibility_faults(self, *, colours_only: bool = False) -> list[str]:
        """Return what the WCAG 2.2 AA rules of axe find wrong with the page as it is now."""
        only = {"type": "rule", "values": ["color-contrast"]} if colours_only else {"type": "tag", "values": _RULES}
        # What is loaded before: only sounds that might begin by themselves. The rules about style sheets are others.
        media = {"assets": ["media"]}
        options: dict[str, Any] = {"runOnly": only, "resultTypes": ["violations"], "preload": media}
        found = self.page.evaluate(_LOOK, options)
        if found is None:
            self._bring_axe()
            found = self.page.evaluate(_LOOK, options)
        return [
            f"{fault['id']}: {json.dumps(node['html'])} {node['failureSummary']}"
            for fault in found
            for node in fault["nodes"]
        ]

    def faults_in_every_light(self) -> list[str]:
        """Return what is wrong with the page as it is now: in the light on a desk, in the dark on a phone, and the dark
        colours of the desk. Of what stands the same on every page only what no visitor has seen yet is looked at."""
        fresh = self.page.evaluate(_KNOWN, sorted(self._chromium.faultless))
        found = [f"light: {fault}" for fault in self.accessibility_faults()]
        found += self._dark_phone_faults()
        found += [f"dark: {fault}" for fault in self.accessibility_faults(colours_only=True)]
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        self.page.evaluate("delete window.looked")
        if not found:
            self._chromium.faultless.update(fresh)
        return found

    def faults_in_the_dark_on_a_phone(self) -> list[str]:
        """Return what is wrong with the page in dark colours on a phone, which costs a third of every light. Of the
        head and the menus only what no visitor has seen there yet is looked at."""
        fresh = self.page.evaluate(_KNOWN, sorted(self._chromium.faultless_on_a_phone))
        found = self._dark_phone_faults()
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        self.page.evaluate("delete window.looked")
        if not found:
            self._chromium.faultless_on_a_phone.update(fresh)
        return found

    def _dark_phone_faults(self) -> list[str]:
        with self.on_a_phone(_TALL_PHONE):
            # Of the colours that fade into others only the last are looked at: without motion they come at once.
            self.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
            found = [f"dark on a phone: {fault}" for fault in self.accessibility_faults()]
            if (overflow := self._overflow()) > 0:
                found.append(f"{overflow} pixels wider than a phone")
        return found

    def overflow_on_a_phone(self) -> int:
        """Return by how many pixels the page is wider than a screen of 375."""
        with self.on_a_phone():
            return self._overflow()

    @contextmanager
    def on_a_phone(self, size: dict[str, int] = PHONE) -> Iterator[None]:
        """Look at the page through a small screen."""
        self.page.set_viewport_size(size)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self.page.set_viewport_size(DESK)  # type: ignore[arg-type]

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
        self._chromium.take_back(self._context, self._manner, self._url)
        if self.was_cut_off:  # htmx tells by itself of a request that the machine's network dropped
            self.complaints = [each for each in self.complaints if "htmx:sendError" not in each]
        assert not self.complaints, "\n".join(self.complaints)

    def _come(self, address: str, ask: Callable[[], Response | None]) -> Response | None:
        answer = None
        for _ in range(_TRIES):
            before = self._cut_offs
            try:
                answer = ask()
            except Error as error:
                # The browser's own page about it may come late, in place of what was asked for next; and what it
                # dropped it asks for once more by itself.
                own = (_NETWORK_CHANGED, _OF_THE_BROWSER, f'interrupted by another navigation to "{address}"')
                if not any(each in error.message for each in own):
                    raise
                continue
            if self._cut_offs == before:
                break
        return answer

    def _fill_in_who(self, email: str) -> None:
        self.go("/login/")
        self.page.get_by_label("E-mail address").fill(email)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()

    def _bring_axe(self) -> None:
        """Load the rules into this page, and into the next ones: it is much to send."""
        self.page.add_init_script(_AXE)
        self.page.evaluate(_AXE)

    def _overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def _listen(self, message: ConsoleMessage) -> None:
        if _NETWORK_CHANGED in message.text:
            self._cut_offs += 1
            return
        if _ABORTED.match(message.text):
            return
        # A refused address is told by the response too, with more to go by.
        if message.type in ("error", "warning") and not re.match("Failed to load resource: the server", message.text):
            self.complaints.append(f"{message.type} on {self.page.url}: {message.text}")

    def _look(self, response: Response) -> None:
        if response.status >= 400 and (response.request.resource_type != "document" or response.status >= 500):
            self.complaints.append(f"{response.status} for {response.request.method} {response.url} on {self.page.url}")


def unfold(card: Locator) -> None:
    """Open a card as a person does, who may find it open by itself; the keyboard stays where it is.

    One step in the page: a card that opened by itself folds after a while, and one that a person opened does not.
    """
    card.evaluate(
        "(card) => { const badge = card.querySelector('summary'); if (card.open) badge.click(); badge.click(); }"
    )
