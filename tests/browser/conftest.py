"""One platform and one Chromium for all tests here.

Both end with this folder: while Playwright runs, this thread has an event loop, in which no other test can work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from docker import APIClient

from tests.agent.images import ensure_tmux_image
from tests.browser.chromium import Chromium, open_chromium
from tests.browser.visitor import Visitor, run_on
from tests.system.client import Client
from tests.system.images import ensure_tiny
from tests.system.platform import Platform

Visit = Callable[..., Visitor]
# Every page is looked at in the dark elsewhere; what a test does on it once more in the dark is for the long ones.
THEMES = ["light", pytest.param("dark", marks=pytest.mark.long)]


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with one agent of 4 cores and 2 GiB, and an image whose shells live in tmux."""
    ensure_tiny()
    engine = APIClient()
    shell = ensure_tmux_image(engine)
    engine.close()
    with Platform(tmp_path_factory.mktemp("browser"), images={"shell": shell}) as platform:
        yield platform


@pytest.fixture(scope="package")
def alice(platform: Platform) -> Client:
    """The people are there; a script of Alice's."""
    return Client(platform.url, run_on(platform, "make_visitors"))


@pytest.fixture(scope="package")
def chromium() -> Iterator[Chromium]:
    """The browser."""
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def visit(chromium: Chromium, platform: Platform, alice: Client) -> Iterator[Visit]:
    """Return a visitor; each must leave without a complaint."""
    visitors: list[Visitor] = []

    def come(email: str = "", **options: Any) -> Visitor:
        visitors.append(Visitor(chromium, platform.url, **options))
        return visitors[-1].sign_in(email) if email else visitors[-1]

    yield come
    for visitor in visitors:
        visitor.leave()


@dataclass(frozen=True)
class Campus:
    """A platform with one of everything; ``rows`` are those that stand in its addresses."""

    platform: Platform
    alice: Client
    rows: dict[str, str]


@pytest.fixture(scope="package")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    """Two simulated machines of 8 cores with two accelerators each, where nobody's names are what a name should be."""
    slots = {"BACKENDAI_AGENT_SLOTS": "cpu=8,mem=8g,cuda.device=2"}
    folder = tmp_path_factory.mktemp("campus")
    with Platform(folder, agents=2, backend="simulated", images={}, extra=slots) as platform:
        rows = json.loads(run_on(platform, "make_campus", "make_campus"))
        yield Campus(platform, Client(platform.url, rows.pop("alice")), rows)


@pytest.fixture
def walk(chromium: Chromium, campus: Campus) -> Iterator[Visit]:
    """Return a visitor of the campus; each must leave without a complaint."""
    visitors: list[Visitor] = []

    def come(email: str = "", **options: Any) -> Visitor:
        visitors.append(Visitor(chromium, campus.platform.url, **options))
        return visitors[-1].sign_in(email) if email else visitors[-1]

    yield come
    for visitor in visitors:
        visitor.leave()
