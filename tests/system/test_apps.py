"""Apps of sessions through all processes: portal, app proxy, node, container."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from docker import APIClient
from websockets.sync.client import ClientConnection, connect

from tests.agent.images import ensure_service_image
from tests.patience import patient, until
from tests.system.client import Body
from tests.system.platform import READY_WITHIN, Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.usefixtures("tiny_image")]
MIB, GIB = 2**20, 2**30
SIZE = 100
ALLOWED_GROWTH = 40 * MIB


class Visitor:
    """A script that goes into one app of a session, and what it gets there."""

    def __init__(self, platform: Platform, session: Body, service: str) -> None:
        token = platform.client._headers
        path = f"{platform.url}/api/v1/sessions/{session['id']}/apps/"
        self._web = requests.Session()
        self._web.trust_env = False
        found = self._web.get(path, headers=token).json()["results"]
        self.app = next(one for one in found if one["name"] == service)
        self.host = urlsplit(self.app["url"]).netloc
        self.port, self._at = urlsplit(self.app["url"]).port, platform.host
        self.entry = self._web.post(f"{path}{service}/", json={}, headers=token).json()
        self.cookie = ""

    def enter(self) -> requests.Response:
        """Exchange the code."""
        answer = self.ask("POST", "/.backendai/enter", data={"code": self.entry["code"]})
        self.cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
        return answer

    def ask(self, method: str, path: str, **options: object) -> requests.Response:
        """Send a request to the app."""
        headers = {"Host": self.host, "Cookie": self.cookie}
        self._web.cookies.clear()
        url = f"http://{self._at}:{self.port}{path}"
        return self._web.request(method, url, headers=headers, allow_redirects=False, timeout=patient(60), **options)  # type: ignore[arg-type]

    def websocket(self) -> ClientConnection:
        """Open the app's websocket."""
        wire = socket.create_connection((self._at, self.port or 0), timeout=patient(20))
        told = {"Cookie": self.cookie}
        return connect(f"ws://{self.host}/ws", sock=wire, origin=self.app["url"], additional_headers=told)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    engine = APIClient()
    image = ensure_service_image(engine)
    engine.close()
    with Platform(tmp_path_factory.mktemp("apps"), images={"notes": image}) as platform:
        yield platform


@pytest.fixture(scope="module")
def session(platform: Platform) -> Iterator[Body]:
    session = platform.client.wait_until_running(platform.client.launch(image="notes")["id"])
    yield session
    platform.client.end(session["id"])


@pytest.fixture
def visitor(platform: Platform, session: Body) -> Visitor:
    """Somebody whose app has started."""
    visitor = Visitor(platform, session, "notes")
    assert visitor.enter().status_code == 303
    until(lambda: visitor.ask("GET", "/.backendai/open").status_code == 303, 30, "the app has started")
    return visitor


def proxy_of(platform: Platform) -> psutil.Process:
    pid = next(pid for role, pid in platform.pids().items() if role == "appproxy")
    return psutil.Process(pid)


def test_it_starts_the_service_at_the_first_visit_and_leads_to_its_page(platform: Platform, session: Body) -> None:
    visitor = Visitor(platform, session, "notes")
    assert visitor.ask("GET", "/").status_code == 401
    assert visitor.enter().status_code == 303
    assert visitor.enter().json()["code"] == "code-used"
    visitor = Visitor(platform, session, "notes")
    visitor.enter()
    until(lambda: visitor.ask("GET", "/.backendai/open").headers.get("Location") == "/notes", 30, "it has started")
    assert "<h1>Notes</h1>" in visitor.ask("GET", "/notes").text
    assert "backendai-app" not in visitor.ask("GET", "/headers").text


def test_a_websocket_echoes(visitor: Visitor) -> None:
    with visitor.websocket() as websocket:
        websocket.send("hello")
        assert websocket.recv(timeout=patient(20)) == "hello"


@pytest.mark.ci
def test_a_batch_session_has_apps_while_its_program_runs(platform: Platform) -> None:
    client = platform.client
    session = client.launch(image="notes", type="batch", startup_command="exec sleep 300")
    session = client.wait_until_running(session["id"])
    visitor = Visitor(platform, session, "notes")
    assert visitor.enter().status_code == 303
    until(lambda: visitor.ask("GET", "/.backendai/open").status_code == 303, 30, "the app has started")
    assert "<h1>Notes</h1>" in visitor.ask("GET", "/notes").text
    client.end(session["id"])


def test_large_downloads_and_uploads_pass_through_without_filling_anybodys_memory(
    platform: Platform, visitor: Visitor
) -> None:
    processes = [proxy_of(platform), psutil.Process(platform.pids()["agent"])]
    visitor.ask("GET", "/stream/5")
    before = [process.memory_info().rss for process in processes]
    count = 0
    with visitor.ask("GET", f"/stream/{SIZE}", stream=True) as answer:
        for piece in answer.iter_content(MIB):
            count += len(piece)
    assert count == SIZE * MIB
    piece = b"x" * MIB
    assert visitor.ask("POST", "/count", data=_Body(piece, SIZE)).text.strip() == str(SIZE * MIB)
    for process, was in zip(processes, before, strict=True):
        assert process.memory_info().rss - was < ALLOWED_GROWTH, process.name()


@pytest.mark.long
def test_a_gibibyte_each_way_leaves_memory_flat_at_every_moment(platform: Platform, visitor: Visitor) -> None:
    processes = [proxy_of(platform), psutil.Process(platform.pids()["agent"])]
    visitor.ask("GET", "/stream/5")
    before = [process.memory_info().rss for process in processes]
    most = [0, 0]

    def look(number: int) -> None:
        if number % 16 == 0:
            most[:] = [max(had, one.memory_info().rss) for had, one in zip(most, processes, strict=True)]

    count = 0
    with visitor.ask("GET", f"/stream/{GIB // MIB}", stream=True) as answer:
        for number, piece in enumerate(answer.iter_content(MIB)):
            count += len(piece)
            look(number)
    assert count == GIB
    assert visitor.ask("POST", "/count", data=_Body(b"x" * MIB, GIB // MIB, look)).text.strip() == str(GIB)
    grown = [peak - was for peak, was in zip(most, before, strict=True)]
    assert max(grown) < ALLOWED_GROWTH, grown


def test_a_service_that_does_not_start_says_why(platform: Platform, session: Body) -> None:
    visitor = Visitor(platform, session, "broken")
    visitor.enter()
    answer = visitor.ask("GET", "/.backendai/open")
    assert (answer.status_code, "nothing works" in answer.text) == (502, True)
    assert "broken ended with exit code 3." in answer.text


def test_the_supervisor_brings_a_killed_app_proxy_back_and_the_cookie_still_opens(
    platform: Platform, visitor: Visitor
) -> None:
    former = proxy_of(platform).pid
    os.kill(former, signal.SIGKILL)
    until(lambda: former not in platform.pids().values(), READY_WITHIN, "it is gone")

    def opens() -> bool:
        try:
            return visitor.ask("GET", "/").status_code == 200
        except requests.ConnectionError:
            return False

    until(opens, READY_WITHIN, "the app opens again")


def test_the_end_of_the_session_is_the_end_of_the_way_in(platform: Platform) -> None:
    session = platform.client.wait_until_running(platform.client.launch(image="notes")["id"])
    visitor = Visitor(platform, session, "notes")
    visitor.enter()
    until(lambda: visitor.ask("GET", "/.backendai/open").status_code == 303, 30, "the app has started")
    assert visitor.ask("GET", "/").status_code == 200
    with visitor.ask("GET", f"/stream/{GIB // MIB}", stream=True) as download:
        pieces = download.iter_content(MIB)
        next(pieces)
        platform.client.end(session["id"])
        with pytest.raises(requests.exceptions.ChunkedEncodingError):  # it is seen to be broken off
            for _ in pieces:
                pass
    until(lambda: visitor.ask("GET", "/").status_code == 410, 30, "nobody is let in any more")
    again = Visitor(platform, session, "notes")
    assert (again.app["code"], again.entry["code"]) == ("session-not-running", "session-not-running")
    until(lambda: len(connections_of(platform)) <= 1, 30, "no tunnel is left", last=lambda: connections_of(platform))


def connections_of(platform: Platform) -> list[tuple[int, int]]:
    """Return the ports of the agent's connections to the app proxy and to kernels. The proxy keeps one of them for some
    seconds, for questions about services."""
    found = psutil.Process(platform.pids()["agent"]).net_connections("tcp")
    held = [(one.laddr.port, one.raddr.port) for one in found if one.raddr]
    return [(ours, theirs) for ours, theirs in held if theirs != platform.port]


class _Body:
    """A large body that is made while it is sent. ``look`` is called with the number of pieces that are left."""

    def __init__(self, piece: bytes, count: int, look: Callable[[int], None] = lambda left: None) -> None:
        self._piece, self._left, self._look = piece, count, look
        self.len = len(piece) * count

    def read(self, size: int = -1) -> bytes:
        self._left -= 1
        self._look(self._left)
        return self._piece if self._left >= 0 else b""
