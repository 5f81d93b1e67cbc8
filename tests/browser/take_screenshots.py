"""Takes the screenshots of docs/screenshots:  .venv/bin/python -m tests.browser.take_screenshots

It starts a platform of its own and really works on it. Needs the image local/backendai-python (bin/build-images).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.chromium import Chromium, open_chromium
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.system.client import Client
from tests.system.platform import ROOT, Platform

FOLDER = ROOT / "docs" / "screenshots"
PYTHON = "local/backendai-python:latest"
_TRAINING = """
import random, sys, time
random.seed(7)
rows = [(x, 3 * x + 1 + random.gauss(0, 0.1)) for x in (random.uniform(-1, 1) for _ in range(4000))]
w = b = 0.0
epochs = int(sys.argv[1])
print(f"\\x1b[1mFitting a line to {len(rows)} points\\x1b[0m")
for epoch in range(1, epochs + 1):
    loss = 0.0
    for x, y in rows:
        error = w * x + b - y
        loss += error * error
        w, b = w - 0.0004 * error * x, b - 0.0004 * error
    done = 24 * epoch // epochs
    bar = "\\x1b[34m" + "━" * done + "\\x1b[90m" + "━" * (24 - done) + "\\x1b[0m"
    told = f"loss \\x1b[32m{loss / len(rows):.4f}\\x1b[0m  w {w:.3f}  b {b:.3f}"
    print(f"epoch {epoch:3}/{epochs}  {bar}  {told}", flush=True)
    time.sleep(float(sys.argv[2]))
""".strip()
_FILE = f"cat >train.py <<'END'\n{_TRAINING}\nEND\n"


def main() -> int:
    """Take all screenshots, in both themes and at both widths."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    slots = {"BACKENDAI_AGENT_SLOTS": "cpu=8,mem=32g"}
    with (
        tempfile.TemporaryDirectory(prefix="screenshots-") as data,
        Platform(Path(data), agents=2, extra=slots, images={"python": PYTHON}) as platform,
        open_chromium() as browser,
    ):
        paths = _work(platform)
        _train(browser, platform, paths["fine-tune"])
        for theme in ("light", "dark"):
            for on_phone in (False, True):
                visitor = Visitor(browser, platform.url, theme=theme, on_phone=on_phone)
                _visit(visitor, paths, f"{'-375' if on_phone else ''}{'-dark' if theme == 'dark' else ''}.png")
                visitor.leave()
    return 0


def _work(platform: Platform) -> dict[str, str]:
    """Launch sessions of two people; returns the addresses of the session pages by name."""
    ada, noor = platform.client, Client(platform.url, run_on(platform, "make_lab"))
    job = {"image": "python", "type": "batch"}
    ada.wait_for(_launch(noor, "prepare-data", 1, "2g", **job, startup_command="echo done"), "TERMINATED")
    ada.wait_for(_launch(ada, "export-model", 1, "2g", **job, startup_command="python -c 'import model'"), "TERMINATED")
    train = f"{_FILE}python train.py 400 1"
    running = {
        "preprocess": _launch(noor, "preprocess", 4, "16g", **job, startup_command=train),
        "train-baseline": _launch(ada, "train-baseline", 4, "8g", **job, startup_command=train),
        "sweep": _launch(noor, "sweep", 1, "4g", cluster_size=2),
        "fine-tune": _launch(ada, "fine-tune", 4, "16g"),
    }
    for session_id in running.values():
        ada.wait_until_running(session_id)
    waiting = {"evaluate": _launch(ada, "evaluate", 6, "24g"), "report": _launch(noor, "report", 2, "4g")}
    return {name: f"/sessions/{session_id}/" for name, session_id in (running | waiting).items()}


def _launch(client: Client, name: str, cpu: int, mem: str, **fields: object) -> str:
    return str(client.launch(name, **({"image": "python", "resources": {"cpu": cpu, "mem": mem}} | fields))["id"])


def _train(browser: Chromium, platform: Platform, path: str) -> None:
    visitor = Visitor(browser, platform.url).sign_in(ADMIN)
    visitor.go(f"{path}#terminal")
    visitor.type(_FILE + "clear; python -VV; nproc; python train.py 18 0.05")
    expect(visitor.screen).to_contain_text("epoch  18/18", timeout=30_000)
    visitor.leave()


def _visit(visitor: Visitor, paths: dict[str, str], ending: str) -> None:
    page = visitor.page

    def shoot(name: str) -> None:
        page.wait_for_timeout(500)  # fonts and the terminal's last lines
        page.screenshot(path=FOLDER / f"{name}{ending}", animations="disabled")

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

    groups = "/manage/groups/"
    steps: list[tuple[str, str, Callable[[], None]]] = [
        ("launch", "/sessions/new/", lambda: expect(page.locator("#launch-outlook")).not_to_be_empty()),
        ("launch-waits", "/sessions/new/?step=2", would_wait),
        ("session", f"{paths['fine-tune']}#terminal", connected),
        ("log", f"{paths['train-baseline']}#log", lambda: expect(page.locator("#log-state")).to_have_text("Live")),
        ("waiting", paths["evaluate"], lambda: expect(page.locator("#outlook")).to_contain_text("Not yet.")),
        ("history", f"{paths['evaluate']}history/", unfolded),
        ("dashboard", "/dashboard/", lambda: None),
        ("tokens", "/account/tokens/", lambda: None),
        ("security", "/account/security/", lambda: None),
        ("agents", "/manage/agents/", lambda: None),
        ("users", "/manage/users/", lambda: None),
        ("images", "/manage/images/", lambda: None),
        ("statistics", "/manage/statistics/", lambda: None),
        ("information", "/manage/information/", lambda: None),
        ("groups", groups, lambda: None),
        ("group", groups, rules),
    ]
    visitor.go("/login/")
    shoot("login")
    visitor.sign_in(ADMIN)
    expect(page.locator("#live-mark")).to_have_text("Live")
    shoot("sessions")
    close_all = page.get_by_role("button", name="Close all")
    if close_all.count():  # seen once, on the list
        close_all.click()
        expect(close_all).to_have_count(0)
    for name, path, settled in steps:
        visitor.go(path)
        settled()
        shoot(name)


if __name__ == "__main__":
    sys.exit(main())
