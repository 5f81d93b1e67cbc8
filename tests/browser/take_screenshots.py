"""Takes the screenshots of docs/screenshots:  .venv/bin/python -m tests.browser.take_screenshots

It starts a platform of its own and really works on it. Needs the images local/backendai-python and -python-science
(bin/build-images).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.chromium import Chromium, open_chromium
from tests.browser.people import ADMIN
from tests.browser.pictured_work import TRAINING_FILE, Work
from tests.browser.visitor import Visitor
from tests.patience import patient
from tests.system.platform import ROOT, Platform

FOLDER = ROOT / "docs" / "screenshots"
IMAGES = {"python": "local/backendai-python:latest", "python-science": "local/backendai-python-science:latest"}
ON_PHONES = ("session", "launch", "folder", "run")  # in the light theme
_FILES = (
    "mkdir -p ocean-data/2025 ocean-data/models; cp train.py ocean-data/; "
    "echo '# Ocean temperatures' >ocean-data/README.md; "
    "for n in 01 02 03; do seq 90000 >ocean-data/2025/buoy-$n.csv; done; touch ocean-data/models/best.pt; clear"
)
_CODE = """import numpy as np
print("buoys:", 3, "days:", 120)
np.linspace(0, 1, 5)"""
_PLOT = """import matplotlib.pyplot as plt
days = np.arange(120)
for depth in (5, 50, 200):
    plt.plot(days, 18 - depth / 20 + np.sin(days / 19) * 4 / (1 + depth / 60), label=f"{depth} m")
plt.legend(); plt.gcf().set_size_inches(7, 2.6); plt.title("Temperature by depth")
plt.show()"""


def main() -> int:
    """Take all screenshots, in both themes; some as on a phone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    slots = {"BACKENDAI_AGENT_SLOTS": "cpu=8,mem=32g"}
    with (
        tempfile.TemporaryDirectory(prefix="screenshots-") as data,
        Platform(Path(data), agents=2, extra=slots, images=IMAGES) as platform,
        open_chromium() as browser,
    ):
        work = Work(platform)
        _train(browser, platform, work.paths["fine-tune"])
        with work.served():
            for theme, on_phone in (("light", False), ("dark", False), ("light", True)):
                visitor = Visitor(browser, platform.url, theme=theme, on_phone=on_phone)
                ending = f"{'-375' if on_phone else ''}{'-dark' if theme == 'dark' else ''}.png"
                _visit(visitor, work.paths, ending, ON_PHONES if on_phone else ())
                visitor.leave()
    return 0


def _train(browser: Chromium, platform: Platform, path: str) -> None:
    """Work in the terminal and in the console of a session."""
    visitor = Visitor(browser, platform.url).sign_in(ADMIN)
    visitor.go(f"{path}#terminal")
    visitor.type(TRAINING_FILE + _FILES)
    visitor.type("python -VV; nproc; python train.py 18 0.05")
    expect(visitor.screen).to_contain_text("epoch  18/18", timeout=patient(30_000))
    visitor.go(f"{path}console/")
    expect(visitor.page.locator("#console-state")).to_have_text("Connected")
    for code in (_CODE, _PLOT):
        visitor.page.get_by_label("Code", exact=True).fill(code)
        visitor.page.keyboard.press("Shift+Enter")
    expect(visitor.page.locator(".console-cell img")).to_be_visible(timeout=patient(120_000))
    visitor.leave()


def _visit(visitor: Visitor, paths: dict[str, str], ending: str, names: tuple[str, ...]) -> None:
    """Take the pictures of these names, or of all pages."""
    page = visitor.page

    def shoot(name: str) -> None:
        page.wait_for_timeout(500)  # fonts and the terminal's last lines
        page.screenshot(path=FOLDER / f"{name}{ending}", animations="disabled")

    def drawn() -> None:
        expect(page.locator(".console-cell img")).to_be_visible()
        page.get_by_label("Code", exact=True).scroll_into_view_if_needed()

    def connected() -> None:
        expect(page.locator("#terminal-state")).to_have_text("Connected")

    def would_wait() -> None:
        page.get_by_label("CPU cores", exact=True).fill("6")
        page.get_by_label("Memory", exact=True).fill("24g")
        expect(page.locator("#launch-outlook")).to_contain_text("Waits")
        page.get_by_label("CPU cores", exact=True).evaluate("(field) => field.scrollIntoView({ block: 'center' })")

    def unfolded() -> None:
        page.locator("#history-rows .expander").first.click()

    def rules() -> None:
        page.get_by_role("link", name="default", exact=True).first.click()
        expect(page.get_by_role("heading", name="default", exact=True)).to_be_visible()

    steps: list[tuple[str, str, Callable[[], None]]] = [
        ("launch", "/sessions/new/", lambda: expect(page.locator("#launch-outlook")).not_to_be_empty()),
        ("launch-waits", "/sessions/new/?step=2", would_wait),
        ("session", f"{paths['fine-tune']}#terminal", connected),
        ("log", f"{paths['train-baseline']}#log", lambda: expect(page.locator("#log-state")).to_have_text("Live")),
        ("waiting", paths["evaluate"], lambda: expect(page.locator("#outlook")).to_contain_text("Not yet.")),
        ("history", f"{paths['evaluate']}history/", unfolded),
        ("console", f"{paths['fine-tune']}console/", drawn),
        (
            "folder",
            paths["folder"],
            lambda: expect(page.get_by_role("link", name="train.py", exact=True)).to_be_visible(),
        ),
        ("run", paths["run"], lambda: expect(page.locator(".run-graph .node").first).to_be_visible()),
        ("endpoint", paths["endpoint"], lambda: expect(page.locator(".endpoint-plots").first).to_be_visible()),
        ("dashboard", "/dashboard/", lambda: None),
        ("agents", "/manage/agents/", lambda: None),
        ("users", "/manage/users/", lambda: None),
        ("images", "/manage/images/", lambda: None),
        ("statistics", "/manage/statistics/", lambda: None),
        ("group", "/manage/groups/", rules),
    ]
    visitor.sign_in(ADMIN)
    expect(page.locator("#live-mark")).to_have_text("Live")
    if not names:
        shoot("sessions")
    close_all = page.get_by_role("button", name="Close all")
    if close_all.count():  # seen once, on the list
        close_all.click()
        expect(close_all).to_have_count(0)
    for name, path, settled in steps:
        if names and name not in names:
            continue
        visitor.go(path)
        settled()
        shoot(name)


if __name__ == "__main__":
    sys.exit(main())
