"""The console in the browser: one page before one session, whose interpreter is Python in a container."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator

import pytest
from docker import APIClient
from playwright.sync_api import Locator, WebSocketRoute, expect

from tests.agent.images import ensure_python_image
from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import Visitor
from tests.patience import patient
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
from backendai.domain.catalog.models import Image
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


@pytest.mark.core
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
    expect(asks.locator(".console-stdout")).to_have_text("Your name? Bo\nhello Bo\n")
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


def test_code_that_was_not_taken_is_kept_and_runs_once(visit: Visit, session_id: str) -> None:
    visitor = visit(ALICE)
    page, lost, is_cut = visitor.page, list[str](), [False]

    def pass_on(browser: WebSocketRoute) -> None:
        portal = browser.connect_to_server()

        def up(message: str | bytes) -> None:
            if '"type":"run"' in str(message) and (is_cut[0] or not lost):
                lost.append(str(message))
                browser.close(code=1011)
            else:
                portal.send(message)

        browser.on_message(up)

    page.route_web_socket(re.compile("/runs/$"), pass_on)
    visitor.go(f"/sessions/{session_id}/console/")
    expect(page.locator("#console-state")).to_have_text("Connected")
    name = f"once_{secrets.token_hex(4)}"  # a second try of this test finds the session as the first one left it
    cell = run(visitor, f"{name} = globals().get('{name}', 0) + 1; print('ran', {name})")
    expect(cell.locator(".console-stdout")).to_have_text("ran 1\n")
    assert len(lost) == 1, "the first frame never reached the portal"
    is_cut[0] = True
    waiting = run(visitor, f"{name}2 = globals().get('{name}2', 0) + 1; print('then', {name}2)")
    expect(state_of(waiting)).to_have_text("Not sent yet")
    page.get_by_label("Code", exact=True).fill("a draft")
    page.reload()
    cell = page.locator(".console-cell", has_text=f"print('then', {name}2)")
    expect(state_of(cell)).to_have_text("Not sent yet")
    expect(page.get_by_label("Code", exact=True)).to_have_value("a draft")
    is_cut[0] = False
    expect(cell.locator(".console-stdout")).to_have_text("then 1\n")
    page.reload()
    expect(page.locator("#console-state")).to_have_text("Connected")
    expect(page.locator(".console-cell", has_text=f"print('then', {name}2)")).to_have_count(1)
    expect(page.locator("#console-notice")).to_be_hidden()


def test_earlier_runs_come_on_request_above_the_others_with_their_output(visit: Visit, session_id: str) -> None:
    visitor = visit(ALICE)
    page = visitor.page

    def three_at_a_time(browser: WebSocketRoute) -> None:
        portal = browser.connect_to_server()

        def up(message: str | bytes) -> None:
            order = json.loads(message)
            portal.send(json.dumps({**order, "limit": 3} if order["type"] == "runs" else order))

        browser.on_message(up)

    page.route_web_socket(re.compile("/runs/$"), three_at_a_time)
    visitor.go(f"/sessions/{session_id}/console/")
    expect(page.locator("#console-state")).to_have_text("Connected")
    for number in range(5):
        expect(state_of(run(visitor, f"print('page', {number})"))).to_have_text("Finished")
    visitor.reload()
    printed, more = page.locator(".console-stdout", has_text="page "), page.locator("#console-earlier button")
    expect(printed).to_have_text([f"page {number}\n" for number in (2, 3, 4)])
    expect(more).to_have_text("Show earlier code")
    assert visitor.accessibility_faults() == []
    third = page.locator(".console-cell", has_text="print('page', 2)")
    place = third.evaluate("(one) => one.getBoundingClientRect().top")
    more.click()
    expect(printed).to_have_text([f"page {number}\n" for number in range(5)])
    assert abs(third.evaluate("(one) => one.getBoundingClientRect().top") - place) < 40, "what one reads stays there"
    while more.is_visible():
        more.click()
        expect(more).to_be_enabled()
    expect(more).to_be_hidden()
    expect(printed).to_have_count(5)


def test_long_code_runs_and_code_that_is_refused_comes_back(visitor: Visitor) -> None:
    page = visitor.page
    code, button = page.get_by_label("Code", exact=True), page.get_by_role("button", name="Run code")
    page.evaluate("document.getElementById('console-code').value = 'print(len(\"' + 'x'.repeat(2 ** 20 - 20) + '\"))'")
    button.click()
    expect(page.locator(".console-cell").last.locator(".console-stdout")).to_have_text(f"{2**20 - 20}\n")
    page.evaluate("document.getElementById('console-code').value = '#' + 'x'.repeat(2 ** 20)")
    button.click()
    expect(page.locator("#console-notice")).to_contain_text("The code is too large: 1 MiB at most.")
    assert code.evaluate("(one) => one.value.length") == 2**20 + 1
    code.fill("refused")
    page.evaluate("""() => {
        const context = document.getElementById("console-context");
        context.add(new Option("a/b", "a/b"));
        context.value = "a/b";
    }""")
    button.click()
    cell = page.locator(".console-cell", has=page.locator(".console-source", has_text=re.compile("^refused$")))
    expect(cell.locator(".console-cell-state")).to_contain_text("Not run: A name has 1 to 64 letters")
    expect(code).to_have_value("refused")
    cell.get_by_role("button", name="Edit and run again").click()
    expect(cell).to_have_count(0)
    code.fill("")


def test_a_hundred_thousand_flushed_lines_leave_the_page_usable(visitor: Visitor) -> None:
    page = visitor.page
    cell = run(visitor, "for n in range(100_000): print('line', n, 'x' * 8, flush=True)")
    code = page.get_by_label("Code", exact=True)
    code.press_sequentially("print(6*7)")
    expect(code).to_have_value("print(6*7)")
    expect(state_of(cell)).to_have_text("Finished", timeout=patient(120_000))
    expect(cell.locator(".console-stdout")).to_contain_text("line 99999 xxxxxxxx\n")
    expect(cell.locator(".console-gap")).to_contain_text("earlier output are not shown")
    assert cell.evaluate("(one) => one.textContent.length") < 1_200_000
    assert cell.evaluate("(one) => one.querySelectorAll('*').length") < 2000
    with page.expect_download() as download:
        page.get_by_role("button", name="Download notebook").click()
    notebook = json.loads(download.value.path().read_text())
    [outputs] = [one["outputs"] for one in notebook["cells"] if "range(100_000)" in "".join(one["source"])]
    assert "".join(outputs[0]["text"]) == "".join(f"line {n} xxxxxxxx\n" for n in range(100_000))


def test_long_code_and_what_was_left_out_are_named_on_the_page_and_in_the_notebook(
    visit: Visit, visitor: Visitor, session_id: str
) -> None:
    page = visitor.page
    long = "# " + "z" * 20_000 + "\nprint('whole')"
    page.get_by_label("Code", exact=True).fill(long)
    page.get_by_role("button", name="Run code").click()
    expect(state_of(page.locator(".console-cell").last)).to_have_text("Finished")
    cut = run(visitor, "'q' * 2_000_000")
    expect(cut.locator(".console-gap")).to_contain_text("were not kept")
    again = visit(ALICE)
    again.go(f"/sessions/{session_id}/console/")
    cell = again.page.locator(".console-cell", has_text="zzzz")
    expect(cell.get_by_text("Only the beginning of the code is shown.")).to_be_visible()
    with again.page.expect_download() as download:
        again.page.get_by_role("button", name="Download notebook").click()
    notebook = json.loads(download.value.path().read_text())
    told = {"".join(one["source"]): one["outputs"] for one in notebook["cells"]}
    assert long in told
    assert "were not kept" in told["'q' * 2_000_000"][-1]["text"][0]
    expect(cell.get_by_text("Only the beginning of the code is shown.")).to_be_hidden()
    cell.get_by_role("button", name="Edit and run again").click()
    expect(again.page.get_by_label("Code", exact=True)).to_have_value(long)
    again.page.get_by_label("Code", exact=True).fill("")


def test_a_login_that_ends_is_named_with_the_way_back(visit: Visit, session_id: str) -> None:
    visitor = visit()
    visitor.sign_in(ALICE, afresh=True)
    page = visitor.page
    visitor.go(f"/sessions/{session_id}/console/")
    expect(page.locator("#console-state")).to_have_text("Connected")
    page.get_by_label("Code", exact=True).fill("kept over the sign-in")
    window = page.context.new_page()
    window.goto(page.url)
    window.locator("header summary").filter(has_text="Account of").click()
    window.get_by_role("button", name="Sign out").click()
    expect(window.get_by_label("Password")).to_be_visible()
    notice = page.locator("#console-notice")
    expect(notice).to_contain_text("You are signed out.")
    expect(notice.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
    visitor.complaints.clear()  # the browser complains of what was refused
