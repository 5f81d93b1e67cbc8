"""A day of two endpoints in ten minutes, on a platform whose machine they fill: load, updates, sleep, and the page that
tells of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import requests
from playwright.sync_api import expect

from tests.browser.chromium import open_chromium
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.patience import patient, until
from tests.system.client import TERMINAL, Body
from tests.system.platform import READY_WITHIN, Platform, free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(490)]
SOURCE = Path(__file__).with_name("model_server.py").read_text().replace("'", "'\\''")
EACH = {"cpu": "0.2", "mem": "64m"}
MOST, STEADY = 3, 2  # replicas: together they fill the machine
FELL_WITHIN = 420.0  # five minutes of peaks, and the time in which replicas end


class Served:
    """An endpoint, and callers of it."""

    def __init__(self, platform: Platform, name: str, **wish: Any) -> None:
        self.client, self.name = platform.client, name
        self.revision = {"image": "python", "command": f"exec python3 -c '{SOURCE}'", "port": free_port()}
        self.revision |= {"resources": EACH, "model_name": name}
        self.made = self.client.post("endpoints/", {"name": name, **self.revision, **wish})
        self.path = f"endpoints/{self.made['id']}/"
        self.token = self.client.post(f"{self.path}tokens/", {"name": "story"})["token"]

    def look(self) -> Body:
        """Return the endpoint as it is now."""
        return dict(self.client._get(self.path).json())

    def codes(self) -> list[str]:
        """Return what was decided, the newest first."""
        return [one["code"] for one in self.client._get(f"{self.path}history/").json()["results"]]

    def wait(self, what: str, question: Callable[[Body], bool], seconds: float = READY_WITHIN) -> None:
        """Wait until something is so of the endpoint."""
        until(lambda: question(self.look()), seconds, f"{self.name}: {what}", last=lambda: (self.look(), self.codes()))

    def update(self, environ: dict[str, str]) -> None:
        """Begin an update to a revision with these variables."""
        self.client.post(f"{self.path}revisions/", {**self.revision, "environ": environ})

    def chat(self, **more: Any) -> str:
        """Stream a chat with OpenAI's client by the address that all endpoints share; returns its first word."""
        common = self.made["common_url"]
        host, _, port = common.partition("://")[2].partition("/")[0].rpartition(":")
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key=self.token,
            default_headers={"Host": f"{host}:{port}"},
            max_retries=0,
            timeout=patient(90),
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )
        messages: Any = [{"role": "user", "content": "Hello"}]
        with client:
            stream = client.chat.completions.create(
                model=self.name, messages=messages, stream=True, extra_body=more or None
            )
            return "".join(piece.choices[0].delta.content or "" for piece in stream).split()[0]


class Callers:
    """So many callers of an endpoint, one request after another; ``lost`` are those that failed."""

    def __init__(self, served: Served, number: int, *, pause: float = 0.0, **body: Any) -> None:
        self.lost: list[str] = []
        self.names: set[str] = set()
        self._served, self._pause, self._body = served, pause, body
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(number)]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        while not self._over.is_set():
            try:
                self.names.add(self._served.chat(**self._body))
            except (openai.OpenAIError, requests.RequestException) as error:
                self.lost.append(repr(error)[:300])
            self._over.wait(self._pause)


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    slots = f"cpu={0.2 * (MOST + STEADY):g},mem=4g"
    extra = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes", "BACKENDAI_AGENT_SLOTS": slots}
    with Platform(tmp_path, backend="process", extra=extra) as platform:
        yield platform
        for endpoint in platform.client._get("endpoints/").json()["results"]:
            platform.client._send("DELETE", f"endpoints/{endpoint['id']}/")
        ended = lambda: all(one["status"] in TERMINAL for one in platform.client.sessions())  # noqa: E731
        until(ended, READY_WITHIN, "all replicas have ended")


@pytest.mark.ci
def test_a_request_wakes_an_endpoint_and_load_starts_more_replicas(platform: Platform) -> None:
    wave = Served(platform, "wave", minimum=0, maximum=MOST, target=1)
    assert wave.look()["ready"] == 0
    assert wave.chat(), "it waits until a replica is ready"
    with Callers(wave, 5, seconds=0.5) as load:
        wave.wait("the load starts three replicas", lambda one: one["ready"] == MOST)
        until(lambda: len(load.names) == MOST, READY_WITHIN, "three replicas answer", last=lambda: load.names)
    assert load.lost == []


@pytest.mark.long
def test_a_day_of_two_endpoints(platform: Platform) -> None:
    steady = Served(platform, "steady", minimum=STEADY, maximum=STEADY)
    wave = Served(platform, "wave", minimum=0, maximum=MOST, target=1, asleep_after=20)
    steady.wait("two replicas answer", lambda one: one["ready"] == STEADY)
    wave.chat()
    with Callers(wave, 5, seconds=0.5) as load:
        wave.wait("the load starts three replicas", lambda one: one["ready"] == MOST)
        until(lambda: len(load.names) == MOST, READY_WITHIN, "three replicas answer", last=lambda: load.names)
    assert load.lost == []
    with ExitStack() as calls:
        trickle = calls.enter_context(Callers(wave, 1, pause=4))
        with Callers(steady, 2, pause=0.1) as kept:
            _update_on_a_full_machine(steady)
            _go_back_from_a_broken_revision(steady)
        assert kept.lost == []
        wave.wait("the number falls to one", lambda one: one["desired"] == 1 == one["ready"], FELL_WITHIN)
    assert trickle.lost == []
    wave.wait("it falls asleep", lambda one: one["health"] == "asleep")
    assert wave.chat()
    _look_at_the_page(platform, wave, steady)


def _update_on_a_full_machine(steady: Served) -> None:
    """An update waits for room and says so; with a gap allowed it needs none."""
    steady.update({"STORY": "two"})
    steady.wait("the update needs room", lambda one: one["reason"]["code"] == "update-needs-room")
    steady.client._send("PATCH", steady.path, json={"max_unavailable": 1})
    steady.wait("the update is done", lambda one: (one["revision"], one["next_revision"]) == (2, None), 200)


def _go_back_from_a_broken_revision(steady: Served) -> None:
    steady.update({"FAULT": "exit"})
    until(lambda: "rolled-back" in steady.codes(), READY_WITHIN, "the broken revision goes back", last=steady.codes)
    steady.wait("both replicas serve again", lambda one: (one["revision"], one["ready"]) == (2, STEADY))


def _look_at_the_page(platform: Platform, wave: Served, steady: Served) -> None:
    """The plots mark each change of the number; the decisions list them."""
    run_on(platform, "make_administrator")
    faults: list[str] = []
    with open_chromium() as browser:
        for theme, on_phone in (("light", False), ("dark", True)):
            visitor = Visitor(browser, platform.url, theme=theme, on_phone=on_phone).sign_in(ADMIN)
            for served, changes in (
                (wave, ("0 → 1", "→ 3", "2 → 1", "1 → 0")),
                (steady, ("Revision 2 stays", "revision 2")),
            ):
                visitor.go(f"/endpoints/{served.made['id']}/")
                expect(visitor.page.get_by_role("heading", name=served.name, level=1)).to_be_visible()
                visitor.page.screenshot(path=platform.data.parent / f"{served.name}-{theme}.png", full_page=True)
                shown = visitor.page.locator("section[aria-labelledby=decisions]").inner_text()
                assert [one for one in changes if one not in shown] == []
                faults += visitor.accessibility_faults()
            visitor.go("/endpoints/new/")
            visitor.page.get_by_role("button", name="Check placement").last.click()
            expect(visitor.page.get_by_text("This field is required").first).to_be_visible()
            visitor.page.screenshot(path=platform.data.parent / f"new-{theme}.png", full_page=True)
            faults += visitor.accessibility_faults()
            visitor.leave()
    assert faults == []
