"""The machine's Chromium without a window, and what visitors borrow of it."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from tests.patience import patient

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 760}
# The same engine twice; the first has nothing around it that draws windows, and takes a third less of the processor.
_PROGRAMS = ("chromium-headless-shell", "chromium")
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
_PATIENCE_MS, _EXPECTED_MS = 15_000, 20_000  # the machine may be busy with containers


class Manner(NamedTuple):
    """How somebody looks at pages."""

    theme: str
    scripts: bool
    on_phone: bool


class Chromium:
    """A browser that lends contexts. One that comes back has lost its windows, what they had stored and its cookies,
    and kept the files of the portal's pages, as the browser of somebody who comes again. ``signed_in`` has the cookies
    of those who have signed in with the form, by address and person; ``faultless`` the signs of what visitors have
    looked at in every light and found nothing wrong with."""

    def __init__(self, browser: Browser) -> None:
        self.signed_in: dict[tuple[str, str], list[Any]] = {}
        self.faultless: set[str] = set()
        self.faultless_on_a_phone: set[str] = set()
        self._browser = browser
        self._idle: defaultdict[Manner, list[BrowserContext]] = defaultdict(list)

    def lend(self, manner: Manner) -> BrowserContext:
        """Return a context without a window."""
        if self._idle[manner]:
            context = self._idle[manner].pop()
        else:
            context = self._browser.new_context(
                viewport=PHONE if manner.on_phone else DESK,  # type: ignore[arg-type]
                color_scheme=manner.theme,  # type: ignore[arg-type]
                java_script_enabled=manner.scripts,
            )
        context.set_default_timeout(patient(_PATIENCE_MS))
        expect.set_options(timeout=patient(_EXPECTED_MS))
        return context

    def take_back(self, context: BrowserContext, manner: Manner, origin: str) -> None:
        """Close the windows of a context and empty it for the next who looks at pages in this manner."""
        # Its cookies go after its windows, which would go to the page of those who are signed out.
        devtools = context.new_cdp_session(context.pages[0])
        devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "local_storage"})
        for page in context.pages:
            page.close()
        context.clear_cookies()
        self._idle[manner].append(context)


@contextmanager
def open_chromium() -> Iterator[Chromium]:
    """Run the machine's Chromium."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield Chromium(browser)
        browser.close()
