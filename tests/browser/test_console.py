"""The console in the browser: one page before one session, whose interpreter is Python in a container."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from docker import APIClient
from playwright.sync_api import Locator, expect

from tests.agent.images import ensure_python_image
from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import Visitor
from tests.system.client import Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_PICTURE = f"""
import base64
class Picture:
    def _repr_png_(self):
        return base64.b64decode("{_DOT}")
Picture()
"""
_HOSTILE = """
class Page:
    def _repr_html_(self):
        return '''<p id="said">still</p>
            <button onclick="location = `PORTAL/healthz?secret`">Leave</button><script>(async () => {
            const tried = { origin: self.origin };
            const blocked = new Set();
            document.addEventListener("securitypolicyviolation", (event) => blocked.add(event.effectiveDirective));
            const attempt = (name, act) => {
                try { tried[name] = act() ? "reached" : "refused"; } catch { tried[name] = "refused"; }
            };
            const loads = (name, source) => new Promise((done) => {
                const one = document.createElement(name);
                one.onload = () => done("reached");
                one.onerror = () => done("refused");
                document.addEventListener("securitypolicyviolation", () => done("refused"));
                one.src = source;
                document.body.append(one);
            });
            attempt("cookie", () => document.cookie);
            attempt("storage", () => localStorage.length + 1);
            attempt("parent", () => parent.document.title);
            attempt("popup", () => window.open("PORTAL/popup"));
            tried.fetch = await fetch("PORTAL/healthz", { mode: "no-cors" }).then(() => "reached", () => "refused");
            tried.image = await loads("img", "PORTAL/static/icons/missing.png");
            tried.script = await loads("script", "PORTAL/static/js/log-lines.js");
            tried.frame = await loads("iframe", "PORTAL/healthz");
            try { top.location = "PORTAL/top"; } catch {}
            parent.postMessage({ type: "run", run_id: "forged", state: "FINISHED", items: [] }, "*");
            tried.blocked = Array.from(blocked).sort().join(" ");
            document.getElementById("said").textContent = "done " + JSON.stringify(tried);
        })()</script>'''
Page()
"""
_IMAGE = ("local/backendai-plain-python", "latest")
_ADD_IMAGE = """
from backendai.catalog.models import Image
Image.objects.update_or_create(name="plain-python", defaults={{"reference": "{}", "minimum": {{"cpu": "0.1"}}}})
"""


@pytest.fixture(scope="module")
def session_id(platform: Platform, alice: Client) -> Iterator[str]:
    """A running session of Alice's with Python."""
    engine = APIClient()
    # By a name of its own: images of one name are versions of one environment.
    engine.tag(ensure_python_image(engine), *_IMAGE)
    image = ":".join(_IMAGE)
    done = platform.manage("shell", "--no-imports", "-c", _ADD_IMAGE.format(image))
    assert done.returncode == 0, done.stderr
    wish = {"image": "plain-python", "resources": {"cpu": "1", "mem": "256m"}}
    session = alice.wait_until_running(alice.launch("console", **wish)["id"])
    yield session["id"]
    alice.end(session["id"])
    engine.remove_image(image)
    engine.close()


@pytest.fixture
def visitor(visit: Visit, session_id: str) -> Visitor:
    """Alice before the console, connected."""
    visitor = visit(ALICE)
    visitor.go(f"/sessions/{session_id}/console/")
    expect(visitor.page.locator("#console-state")).to_have_text("Connected")
    return visitor


def run(visitor: Visitor, code: str) -> Locator:
    """Run code and return its cell."""
    page, cells = visitor.page, visitor.page.locator(".console-cell:not([hidden])")
    number = cells.count()
    page.get_by_label("Code", exact=True).fill(code)
    page.keyboard.press("Shift+Enter")
    expect(cells).to_have_count(number + 1)
    return cells.nth(number)


def state_of(cell: Locator) -> Locator:
    return cell.locator(".console-cell-state")


def test_code_prints_fails_asks_and_is_interrupted(visitor: Visitor) -> None:
    page = visitor.page
    printed = run(visitor, "print(6*7)")
    expect(printed.locator(".console-stdout")).to_have_text("42\n")
    expect(state_of(printed)).to_have_text("Finished")
    expect(state_of(run(visitor, "raise SystemExit(3)"))).to_have_text("Failed, exit code 3")
    asks = run(visitor, "answer = input('Your name? '); print('hello', answer)")
    field = asks.get_by_label("Your name?")
    expect(field).to_be_focused()
    field.fill("Bo")
    field.press("Enter")
    expect(asks.locator(".console-stdout")).to_contain_text("hello Bo")
    asks_in_secret = run(visitor, "import getpass; print(len(getpass.getpass('Key: ')))")
    secret = asks_in_secret.get_by_label("Key:")
    expect(secret).to_have_attribute("type", "password")
    secret.fill("12345")
    secret.press("Enter")
    expect(asks_in_secret.locator(".console-stdout")).to_contain_text("5")
    slow = run(visitor, "import time\nprint('started_at', flush=True)\ntime.sleep(600)")
    expect(slow.locator(".console-stdout")).to_have_text("started_at\n")
    page.get_by_role("button", name="Interrupt").click()
    expect(state_of(slow)).to_have_text("Interrupted")
    expect(slow.locator(".console-error")).to_contain_text("KeyboardInterrupt")


def test_pictures_show_and_code_completes(visitor: Visitor) -> None:
    page = visitor.page
    image = run(visitor, _PICTURE).locator("img.console-image")
    expect(image).to_have_attribute("src", f"data:image/png;base64,{_DOT}")
    assert image.evaluate("(one) => one.decode().then(() => one.naturalWidth)") == 1
    run(visitor, "thermometer = 7")
    code = page.get_by_label("Code", exact=True)
    code.fill("thermo")
    code.press("Control+Space")
    expect(code).to_have_value("thermometer")
    code.fill("thermometer.bit_")
    code.press("Control+Space")
    expect(page.locator("#console-matches li")).to_have_text([re.compile("bit_count"), re.compile("bit_length")])
    code.press("ArrowDown")
    code.press("Enter")
    expect(code).to_have_value(re.compile(r"^thermometer\.bit_length"))


def test_scripts_of_printed_pages_run_after_a_click_and_reach_nothing(visitor: Visitor, platform: Platform) -> None:
    page = visitor.page
    home = page.url
    cell = run(visitor, _HOSTILE.replace("PORTAL", platform.url))
    still = cell.frame_locator("iframe")
    expect(still.locator("#said")).to_have_text("still")
    cell.get_by_role("button", name="Run scripts of this output").click()
    said = cell.frame_locator("iframe").locator("#said")
    expect(said).to_have_text(re.compile("^done "))
    tried = json.loads(said.inner_text().removeprefix("done "))
    assert tried.pop("blocked") == "connect-src img-src script-src-elem"
    assert tried.pop("origin") == "null"
    assert set(tried.values()) == {"refused"} and len(tried) == 8
    cell.frame_locator("iframe").get_by_role("button", name="Leave").click()
    page.wait_for_timeout(500)
    assert not [frame.url for frame in page.frames if "healthz" in frame.url]
    assert page.url == home and page.locator(".console-cell", has_text="forged").count() == 1
    visitor.complaints.clear()  # the browser complains of each


def test_another_context_has_variables_of_its_own(visitor: Visitor) -> None:
    page = visitor.page
    run(visitor, "here = 'main'")
    page.get_by_role("button", name="New context").click()
    dialog = page.get_by_role("dialog", name="New context")
    dialog.get_by_label("Name").fill("second")
    dialog.get_by_role("button", name="Create context").click()
    expect(page.locator("#console-empty")).to_be_visible()
    cell = run(visitor, "print('here' in globals())")
    expect(cell.locator(".console-stdout")).to_have_text("False\n")
    assert visitor.accessibility_faults() == []
    page.locator("#console-context").select_option("main")
    expect(page.locator(".console-source", has_text="here = 'main'")).to_be_visible()


def test_nothing_is_missing_after_the_page_was_left_and_the_notebook_has_it_all(
    visit: Visit, visitor: Visitor, session_id: str
) -> None:
    counting = "import time\nfor n in range(8):\n    print('tick', n, flush=True)\n    time.sleep(0.2)"
    expect(run(visitor, counting).locator(".console-stdout")).to_contain_text("tick 0")
    visitor.go("/")
    again = visit(ALICE)
    again.go(f"/sessions/{session_id}/console/")
    cell = again.page.locator(".console-cell", has_text="range(8)")
    expect(cell.locator(".console-stdout")).to_have_text("".join(f"tick {n}\n" for n in range(8)))
    with again.page.expect_download() as download:
        again.page.get_by_role("button", name="Download notebook").click()
    assert download.value.suggested_filename == "console-main.ipynb"
    notebook = json.loads(download.value.path().read_text())
    told = {"".join(one["source"]): one["outputs"] for one in notebook["cells"]}
    assert "".join(told[counting][0]["text"]) == "".join(f"tick {n}\n" for n in range(8))
    assert told["print(6*7)"][-1]["text"] == ["42\n"]
