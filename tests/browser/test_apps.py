"""An app in the browser: through the one-time code, on an origin of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from docker import APIClient
from playwright.sync_api import Page, expect

from tests.agent.images import SERVICE_LABEL, ensure_service_image
from tests.browser.conftest import Visit
from tests.browser.people import ALICE, CHARLIE
from tests.system.client import Body, Client
from tests.system.platform import Platform

_ATTACKS = (Path(__file__).parent / "attacks.js").read_text()
pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
_IMAGE = ("local/backendai-notes", "latest")
_ADD_IMAGE = """
from backendai.domain.catalog.models import Image
told = {{"reference": "{}", "minimum": {{"cpu": "0.1"}}, "labels": {{"ai.backend.service-ports": "{}"}}}}
Image.objects.update_or_create(name="notes", defaults=told)
"""
_ALLOW_PUBLIC_APPS = """
from backendai.domain.cluster.models.site import SiteSetting
SiteSetting.objects.update_or_create(name="public_apps", defaults={"value": True})
"""

_FORM = """(address) => {
    const form = Object.assign(document.createElement("form"), { method: "post", action: address });
    document.body.append(form);
    form.submit();
}"""


@pytest.fixture(scope="module")
def session(platform: Platform, alice: Client) -> Iterator[Body]:
    """A running session of Alice's, whose image has an app."""
    engine = APIClient()
    # By a name of its own: images of one name are versions of one environment.
    engine.tag(ensure_service_image(engine), *_IMAGE)
    image = ":".join(_IMAGE)
    done = platform.manage("shell", "--no-imports", "-c", _ADD_IMAGE.format(image, SERVICE_LABEL))
    assert done.returncode == 0, done.stderr
    session = alice.wait_until_running(alice.launch("with-apps", image="notes")["id"])
    yield session
    alice.end(session["id"])
    engine.remove_image(image)
    engine.close()


def path_of(session: Body, service: str = "notes") -> str:
    return f"/sessions/{session['id']}/apps/{service}/"


def expect_notes(page: Page) -> None:
    expect(page.get_by_role("heading", name="Notes")).to_be_visible()
    expect(page.locator("#said")).to_have_text("hello from the page")


@pytest.mark.core
def test_it_opens_an_app_on_its_own_origin_and_its_websocket_echoes(visit: Visit, session: Body) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(path_of(session))
    expect_notes(page)
    origin = urlsplit(page.url)
    assert (origin.path, origin.query) == ("/notes", "")
    assert origin.hostname == f"notes-{session['id'].replace('-', '')[:12]}.apps.localhost"
    assert page.evaluate("document.cookie") == "", "our cookie is out of the reach of scripts"
    visitor.reload()
    expect_notes(page)


def test_the_app_does_not_get_the_portals_cookies_nor_the_portal_the_apps(visit: Visit, session: Body) -> None:
    visitor = visit(ALICE)
    visitor.go(path_of(session))
    expect_notes(visitor.page)
    expect(visitor.page.locator("#seen")).to_contain_text("X-Forwarded-Host")
    heard = visitor.page.locator("#seen").inner_text().lower()
    assert "portal=" not in heard and "backendai-app" not in heard and "csrf=" not in heard
    with visitor.page.expect_request("**/account/") as request:
        visitor.go("/account/")
    assert "backendai-app" not in request.value.all_headers().get("cookie", "")
    assert "notes-" not in request.value.all_headers().get("referer", "")


def test_twelve_attacks_of_a_hostile_app_reach_neither_the_portal_nor_another_app(
    visit: Visit, platform: Platform, alice: Client, session: Body
) -> None:
    neighbour = alice.wait_until_running(alice.launch("next-door", image="notes")["id"])
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(path_of(neighbour))
    expect_notes(page)
    next_door = page.evaluate("location.origin")
    visitor.go(path_of(session))
    expect_notes(page)
    cookies = {one["name"]: one["value"] for one in page.context.cookies(platform.url)}
    places = {"portal": platform.url, "neighbour": next_door, "session": session["id"]}
    tried = page.evaluate(_ATTACKS, places)
    assert tried == dict.fromkeys(tried, "refused") and len(tried) == 12, tried
    framed = [frame.url for frame in page.frames[1:]]
    assert framed and not [url for url in framed if url.startswith(platform.url)]
    assert {one["name"]: one["value"] for one in page.context.cookies(platform.url)} == cookies
    assert [one["name"] for one in alice.sessions() if one["name"] == "forged"] == []
    assert alice.session(session["id"])["status"] == "RUNNING"
    visitor.complaints.clear()  # the browser complains of each
    for path in (path_of(neighbour), path_of(session)):  # the cookies that were thrown about keep nobody out
        visitor.go(path)
        expect_notes(page)
    with page.expect_navigation(url=f"{platform.url}/**"):  # a form of the app ends at a refusal
        page.evaluate(_FORM, f"{platform.url}/sessions/{session['id']}/terminate/")
    assert alice.session(session["id"])["status"] == "RUNNING"
    visitor.go("/account/")
    expect(page.get_by_role("heading", name="Profile and password")).to_be_visible()
    visitor.complaints.clear()
    alice.end(neighbour["id"])


def test_it_works_without_scripts_and_has_no_fault_that_shuts_anybody_out(visit: Visit, session: Body) -> None:
    visitor = visit(ALICE, scripts=False)
    visitor.go(path_of(session))
    visitor.page.get_by_role("button", name="Open").click()
    expect(visitor.page.get_by_role("heading", name="Notes")).to_be_visible()


def test_it_shows_why_an_app_does_not_start(visit: Visit, session: Body) -> None:
    visitor = visit(ALICE)
    visitor.go(path_of(session, "broken"))
    expect(visitor.page.get_by_role("heading", name="broken did not start")).to_be_visible()
    expect(visitor.page.locator("pre")).to_have_text("nothing works\n")
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    visitor.page.get_by_role("button", name="Try again").click()
    expect(visitor.page.get_by_role("heading", name="broken did not start")).to_be_visible()
    visitor.complaints.clear()  # the page's own status, 502


def test_it_is_nothing_to_a_stranger(visit: Visit, session: Body) -> None:
    visitor = visit(CHARLIE)
    answer = visitor.go(path_of(session))
    assert answer is not None and answer.status == 404
    hers = f"http://notes-{session['id'].replace('-', '')[:12]}.apps.localhost"
    owner = visit(ALICE)
    owner.go(path_of(session))
    expect_notes(owner.page)
    answer = visitor.go(f"{hers}:{urlsplit(owner.page.url).port}/notes")
    assert answer is not None and answer.status == 401
    expect(visitor.page.get_by_text("This app is private.")).to_be_visible()
    expect(visitor.page.get_by_role("link", name="Sign in and open")).to_be_visible()


def test_an_app_is_made_public_for_a_while_and_private_again(visit: Visit, platform: Platform, session: Body) -> None:
    done = platform.manage("shell", "--no-imports", "-c", _ALLOW_PUBLIC_APPS)
    assert done.returncode == 0, done.stderr
    owner = visit(ALICE)
    page = owner.page
    owner.go(f"/sessions/{session['id']}/")
    page.locator("#apps-button").click()
    dialog = page.locator("#session-box")
    dialog.locator("#publish-notes").click()
    expect(dialog.get_by_role("heading", name=re.compile("Make .*public"))).to_be_visible()
    expect(dialog.get_by_label("1 day")).to_be_checked()
    assert owner.accessibility_faults() == []
    dialog.get_by_label("1 hour").check()
    dialog.get_by_role("button", name="Make public").click()
    expect(dialog.get_by_text("until", exact=False).first).to_be_visible()
    expect(page.locator("#session-state .public-badge")).to_be_visible()
    assert owner.accessibility_faults() == []
    assert owner.overflow_on_a_phone() <= 0
    address = dialog.locator("code").filter(has_text="http").inner_text()
    stranger = visit()
    stranger.go(f"{address}/notes")
    expect_notes(stranger.page)
    dialog.get_by_role("button", name=re.compile("Make private")).click()
    expect(page.locator("#session-state .public-badge")).to_have_count(0)
