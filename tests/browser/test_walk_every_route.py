"""Every page that has an address is readable by all: light and dark, on a desk and on a phone, for a user and for an
administrator, with names that come out as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Chromium
from tests.browser.conftest import Campus
from tests.browser.people import ADMIN, ALICE, RIGHT_TO_LEFT
from tests.browser.visitor import Visitor
from tests.test_census import TABLE, Policy

pytestmark = [pytest.mark.browser, pytest.mark.system]
TURNED = (Path(__file__).parent / "turned.js").read_text()
# Parts of pages, files, and addresses that only lead to others.
NO_PAGES = {
    "healthz",
    "readyz",
    "login/cancelled/",
    "cli/",
    "cli/<str:wheel>",
    "sessions/new/folder/",
    "sessions/<uuid:session_id>/row/",
    "sessions/<uuid:session_id>/panel/",
    "sessions/<uuid:session_id>/commit/left-out/",
    "sessions/<uuid:session_id>/disk/",
    "sessions/usage/",
    "resources/panel/",
    "notifications/bell/",
    "notifications/cards/",
    "account/security/codes/file/",
    "apps/<slug:label>/",
    "folders/at/<folder_digits:digits>/",
    "folders/<uuid:folder_id>/lead/",
    "runs/<uuid:run_id>/board/",
    "help/pictures/<slug:name>.png",
}
PAGES = {
    route: policy
    for route, (policy, methods) in TABLE.items()
    if "GET" in methods
    and policy is not Policy.SHUT
    and route not in NO_PAGES
    and not route.startswith(("api/", "node/"))
}
SAME_FOR_ALL = ("account/", "invitations/", "login/", "notifications/")
OPEN_TO_ALL = [(ALICE, route) for route, policy in PAGES.items() if policy is not Policy.SUPERADMIN]
FOR_ADMINISTRATORS = [(ADMIN, route) for route, policy in PAGES.items() if policy is Policy.SUPERADMIN]
AS_ADMINISTRATORS_SEE_IT = [(ADMIN, route) for _, route in OPEN_TO_ALL if not route.startswith(SAME_FOR_ALL)]
# Pages of the administration below a list: their templates are few, and the tests of the panel look at each.
BELOW_LISTS = re.compile(r"manage/(?!users/<uuid:pk>/$|agents/<uuid:pk>/$|users/new/$|groups/<int:pk>/$)[a-z-]+/.+")


def _quick(email: str, route: str) -> Any:
    return pytest.param(email, route, marks=pytest.mark.long if BELOW_LISTS.fullmatch(route) else ())


@pytest.fixture(scope="module")
def session(campus: Campus) -> Iterator[str]:
    """A running session of Alice's."""
    made = campus.alice.launch("looked-at", image="torch-2.4", resources={"cpu": 1, "mem": "1g"}, cluster_size=2)
    yield campus.alice.wait_until_running(made["id"])["id"]
    campus.alice.end(made["id"])


@pytest.fixture(scope="module")
def parts(campus: Campus, session: str) -> Iterator[dict[str, str]]:
    """What stands in addresses for each of their gaps."""
    alice = campus.alice
    wish = {"image": "torch-2.4", "resources": {"cpu": 1, "mem": "1g"}, "command": "serve"}
    endpoint = alice.post("endpoints/", {"name": "walked", "minimum": 0, **wish})
    usual = {"image": "torch-2.4", "resources": {"cpu": 1, "mem": "1g"}}
    pipeline = {"kind": "pipeline", "name": "walked", "defaults": usual, "steps": {"only": {"startup_command": "true"}}}
    run = alice.post("runs/", {"document": pipeline})
    yield {
        "<uuid:session_id>": session,
        "<uuid:endpoint_id>": endpoint["id"],
        "<uuid:run_id>": run["id"],
        "<uuid:folder_id>": campus.rows["folder"],
        "<uuid:template_id>": campus.rows["template"],
        "<uuid:own_image_id>": campus.rows["own-images"],
        "<slug:service>": "notebook",
        "<str:text>": "nothing",
        "<str:launch_key>": "nothing",
        "<slug:slug>": "rest",
    }
    alice._send("DELETE", f"endpoints/{endpoint['id']}/")


@pytest.fixture(scope="module")
def seen_by(campus: Campus, chromium: Chromium) -> Iterator[dict[str, Visitor]]:
    """Those who look, signed in once."""
    visitors = {email: Visitor(chromium, campus.platform.url).sign_in(email, afresh=True) for email in (ALICE, ADMIN)}
    yield visitors
    for visitor in visitors.values():
        visitor.leave()


@pytest.mark.parametrize(("email", "route"), [_quick(*visit) for visit in [*OPEN_TO_ALL, *FOR_ADMINISTRATORS]])
def test_nobody_finds_a_fault_in_it_in_the_dark_on_a_phone(
    campus: Campus, seen_by: dict[str, Visitor], parts: dict[str, str], email: str, route: str
) -> None:
    visitor = _seen(seen_by[email], campus, parts, route)
    assert visitor.faults_in_the_dark_on_a_phone() == []


@pytest.mark.long
@pytest.mark.parametrize(("email", "route"), [*OPEN_TO_ALL, *FOR_ADMINISTRATORS, *AS_ADMINISTRATORS_SEE_IT])
def test_nobody_finds_a_fault_in_it_in_any_light(
    campus: Campus, seen_by: dict[str, Visitor], parts: dict[str, str], email: str, route: str
) -> None:
    assert _seen(seen_by[email], campus, parts, route).faults_in_every_light() == []


def _seen(visitor: Visitor, campus: Campus, parts: dict[str, str], route: str) -> Visitor:
    visitor.go(_path(route, campus, parts))
    assert visitor.page.title().endswith("Backend.AI"), "names of others are not the title, and every page has one"
    assert visitor.page.evaluate(TURNED, RIGHT_TO_LEFT.split()[-1]) == []
    return visitor


def _path(route: str, campus: Campus, parts: dict[str, str]) -> str:
    for pattern, value in parts.items():
        route = route.replace(pattern, value)
    kind = re.match(r"manage/([a-z-]+)/<", route)
    path = "/" + re.sub("<[a-z]+:pk>", campus.rows[kind[1]] if kind else "1", route)
    assert "<" not in path, "a gap that nothing fills is a page that is not found, which has no faults"
    return path
