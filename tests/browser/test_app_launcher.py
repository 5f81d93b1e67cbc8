"""From the app launcher into servers that people start themselves, and what a hostile one among them can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from docker import APIClient
from playwright.sync_api import Page, expect

from tests.agent.images import ensure_python_image
from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.patience import until
from tests.system.client import Body, Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
_IMAGE = ("local/backendai-launched", "latest")
_ADD_IMAGE = """
from backendai.domain.catalog.models import Image
labels = {{"ai.backend.service-ports": "board:http:[7001],db:tcp:[5432]", "ai.backend.app.board.title": "Board",
    "ai.backend.app.board.arguments": "--folder=/etc", "ai.backend.app.board.category": "machine-learning"}}
told = {{"reference": "{}", "minimum": {{"cpu": "0.1"}}, "labels": labels}}
Image.objects.update_or_create(name="launched", defaults=told)
"""
# A page of files on every address, another on the loopback alone, and a neighbour that answers everybody.
_SERVERS = """
cd /home/work
echo 'hello from a file' > hello.txt
python3 -m http.server 8101 >/dev/null 2>&1 &
python3 -m http.server 8102 --bind 127.0.0.1 >/dev/null 2>&1 &
for port in 8101 8102; do
  until python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null; do sleep 0.2; done
done
"""
_HOSTILE = """async ([portal, neighbour, session]) => {
  const quiet = (asking) => asking.then((it) => `${it.type} ${it.status}`, () => "refused");
  const sent = { credentials: "include" };
  const socket = (address) => new Promise((done) => {
    const one = new WebSocket(address.replace("http", "ws"));
    one.onopen = () => done("open");
    one.onerror = () => done("refused");
  });
  const framed = (address) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.src = address;
    const text = () => String(frame.contentDocument?.body?.innerText ?? "refused").slice(0, 40);
    const seen = () => { try { return text(); } catch { return "refused"; } };
    frame.onload = () => done(seen());
    setTimeout(() => done(seen()), 3000);
    document.body.append(frame);
  });
  const loaded = (name, address) => new Promise((done) => {
    const one = document.createElement(name);
    one.onload = () => done("loaded");
    one.onerror = () => done("refused");
    one.src = address;
    document.body.append(one);
  });
  const posted = (address) => {
    const [frame, form] = ["iframe", "form"].map((name) => document.createElement(name));
    Object.assign(frame, { name: "hidden" });
    Object.assign(form, { method: "post", action: address, target: "hidden" });
    form.append(Object.assign(document.createElement("input"), { name: "force", value: "on" }));
    document.body.append(frame, form);
    form.submit();
    return new Promise((done) => setTimeout(() => done("sent"), 1500));
  };
  document.cookie = "backendai-app=mine; domain=apps.localhost; path=/";
  document.cookie = "sessionid=mine; domain=localhost; path=/";
  const said = {
    "portal read": await quiet(fetch(`${portal}/api/v1/me/`, sent)),
    "portal write": await quiet(fetch(`${portal}/api/v1/sessions/${session}/`, { method: "DELETE", ...sent })),
    "portal form": await posted(`${portal}/sessions/${session}/terminate/`),
    "portal socket": await socket(`${portal}/ws/events/`),
    "terminal socket": await socket(`${portal}/ws/sessions/${session}/terminal/`),
    "portal frame": await framed(`${portal}/sessions/`),
    "portal script": await loaded("script", `${portal}/api/v1/me/`),
    "neighbour read": await quiet(fetch(`${neighbour}/hello.txt`, sent)),
    "neighbour frame": await framed(`${neighbour}/hello.txt`),
    "neighbour picture": await loaded("img", `${neighbour}/hello.txt`),
    "neighbour socket": await socket(`${neighbour}/`),
    "own cookie": String(document.cookie.includes("mine")),
    opener: String(window.opener),
  };
  return said;
}"""


@pytest.fixture(scope="module")
def session(platform: Platform, alice: Client) -> Iterator[Body]:
    """A running session of Alice's, in which two servers run on ports that she opened."""
    engine = APIClient()
    # By a name of its own: images of one name are versions of one environment.
    engine.tag(ensure_python_image(engine), *_IMAGE)
    image = ":".join(_IMAGE)
    done = platform.manage("shell", "--no-imports", "-c", _ADD_IMAGE.format(image))
    assert done.returncode == 0, done.stderr
    launch = {"image": "launched", "resources": {"cpu": "1", "mem": "128m"}, "preopen_ports": [8101, 8102, 8103]}
    session = alice.wait_until_running(alice.launch("apps", **launch)["id"])
    wish = {"mode": "batch", "code": _SERVERS, "wait": 20}
    run = alice._send("POST", f"sessions/{session['id']}/runs/", json=wish).json()
    path = f"sessions/{session['id']}/runs/{run['run_id']}/"
    run = until(lambda: (now := alice._send("GET", path).json())["state"] == "FINISHED" and now)
    assert run["exit_code"] == 0, run
    yield session
    alice.end(session["id"])
    engine.remove_image(image)
    engine.close()


def open_from_launcher(page: Page, key: str) -> Page:
    """Press the tile by the keyboard; returns the tab that it opens."""
    tile = page.locator(f"#session-box #{key}")
    tile.focus()
    with page.context.expect_page() as opened:
        page.keyboard.press("Enter")
    return opened.value


@pytest.mark.core
def test_the_launcher_leads_into_servers_of_a_session(visit: Visit, session: Body) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/")
    page.locator("#apps-button").click()
    box = page.locator("#session-box")
    parts = box.locator(".app-group :is(h2, h3)")
    expect(parts).to_have_text(["Utilities", "Machine learning", "Other", "Opened ports"])
    for port in (8101, 8102):  # the second listens on the loopback only
        tab = open_from_launcher(page, f"app-port-{port}")
        expect(tab.get_by_role("link", name="hello.txt")).to_be_visible()
        tab.get_by_role("link", name="hello.txt").click()
        expect(tab.get_by_text("hello from a file")).to_be_visible()
        tab.close()
    tab = open_from_launcher(page, "app-port-8103")
    expect(tab.get_by_text("Nothing is listening on port 8103.")).to_be_visible()
    tab.close()
    expect(box.locator("code")).to_contain_text("ssh -N -L 5432:localhost:5432")
    assert visitor.accessibility_faults() == []
    assert visitor.faults_in_the_dark_on_a_phone() == []
    assert visitor.overflow_on_a_phone() <= 0
    visitor.complaints.clear()  # the status of the page that says that nothing listens, 502


def test_an_app_is_given_a_name_and_arguments(visit: Visit, session: Body) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/")
    page.locator("#apps-button").click()
    box = page.locator("#session-box")
    box.locator("#settings-board").click()
    expect(box.get_by_role("heading", name="Settings of Board")).to_be_visible()
    expect(box.get_by_label("--folder")).to_have_value("/etc")
    assert visitor.accessibility_faults() == []
    box.get_by_label("Name").fill("Loss of run 7")
    box.get_by_label("--folder").fill("/home/work")
    box.get_by_role("button", name="Save").click()
    expect(box.locator("#app-board")).to_contain_text("Loss of run 7")
    box.locator("#settings-board").click()
    expect(box.get_by_label("--folder")).to_have_value("/home/work")
    assert visitor.overflow_on_a_phone() <= 0


def test_a_hostile_app_reaches_neither_portal_nor_neighbours(
    visit: Visit, platform: Platform, alice: Client, session: Body
) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{session['id']}/apps/port-8102/")
    expect(page.get_by_role("link", name="hello.txt")).to_be_visible()
    neighbour = "http://{0.hostname}:{0.port}".format(urlsplit(page.url))
    visitor.go(f"/sessions/{session['id']}/apps/port-8101/")
    expect(page.get_by_role("link", name="hello.txt")).to_be_visible()
    said = page.evaluate(_HOSTILE, [platform.url, neighbour, session["id"]])
    sent, own = said.pop("portal form"), said.pop("own cookie")
    assert (sent, own) == ("sent", "true"), "the page did what it could"
    opener = said.pop("opener")
    assert opener == "null"
    assert set(said.values()) <= {"refused", ""}, said
    visitor.complaints.clear()  # the browser complains of each
    assert alice.session(session["id"])["status"] == "RUNNING"
    # What it set for its neighbours' names keeps nobody out: neither of the neighbour nor of the portal.
    visitor.go(neighbour + "/hello.txt")
    expect(page.get_by_text("hello from a file")).to_be_visible()
    visitor.go("/account/")
    expect(page).to_have_url(re.compile("/account/"))
