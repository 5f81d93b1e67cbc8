"""The explorer of a running session's home folder: what its pages ask of the session, and make of the answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.agent.guest.home.contents import FileRefused
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.gates.gateways import guests
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
ENTRY = {"name": "<b>a.txt", "kind": "file", "size": 3, "mtime": 1.0, "etag": "1-3-9"}
LISTING = {"entries": [ENTRY, {"name": "d", "kind": "directory", "size": 0, "mtime": 1e300}], "next": "c2", "total": 9}


class FakeGuest:
    """A gateway whose guest answers what it is told to, and remembers the questions."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(question)
        return self.answers.get(
            question["op"], {"error": {"code": "no-such-file", "message": "There is no such file."}}
        )


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    touched: list[Any] = []
    monkeypatch.setattr(guests.meter, "touch", touched.append)
    return touched


@pytest.fixture
def guest() -> Iterator[FakeGuest]:
    fake = FakeGuest()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(fake.answer(question)).encode() + b"\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    fake.address = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    yield fake
    server.shutdown()
    server.server_close()


@pytest.fixture
def session(cast: Cast, guest: FakeGuest) -> ComputeSession:
    found = make_running_session(cast.alice)
    Agent.objects.update(gateway_url=guest.address)  # type: ignore[attr-defined]
    return found


def page(client: Client, session: ComputeSession, name: str = "home", **query: str) -> tuple[int, str]:
    answer = client.get(reverse(f"web:{name}", args=[session.pk]), query)
    return answer.status_code, " ".join(answer.content.decode().split())


def post(client: Client, session: ComputeSession, verb: str, **form: Any) -> str:
    answer = client.post(reverse(f"web:home_{verb}", args=[session.pk]), form, follow=True)
    return " ".join(answer.content.decode().split())


def test_a_directory_is_shown_in_pages_and_its_names_are_only_text(
    cast: Cast, browse: Browse, guest: FakeGuest, session: ComputeSession
) -> None:
    guest.answers["list"] = LISTING
    client = browse(cast.alice)
    status, shown = page(client, session, path="x/../d", sort="size", order="desc")
    assert status == 200 and "&lt;b&gt;a.txt" in shown and "<b>a.txt" not in shown
    asked = {"op": "list", "path": "x/d", "limit": 200, "sort": "size", "order": "desc", "after": None}
    assert guest.asked == [asked]
    assert "It has no trash" in shown and "Keep the home folder" in shown and 'data-relocate="copy"' not in shown
    assert f'data-api="/api/v1/sessions/{session.pk}/"' in shown
    part = client.get(reverse("web:home", args=[session.pk]), {"after": "c2"}, **HTMX).content.decode()
    assert "<html" not in part and "a.txt" in part and guest.asked[-1]["after"] == "c2"


def test_changes_are_asked_of_the_session_and_refusals_are_said(
    cast: Cast, browse: Browse, guest: FakeGuest, session: ComputeSession
) -> None:
    guest.answers |= {"list": LISTING, "mkdir": {}, "rename": {}, "remove": {"deleted": 2}}
    client = browse(cast.alice)
    assert "The directory new is there." in post(client, session, "make_directory", place="d", name="new")
    assert guest.asked[0] == {"op": "mkdir", "path": "d/new"}
    assert "A name has at least one character" in post(client, session, "rename", source="d/a", name="b/c")
    post(client, session, "rename", source="d/a", name="b")
    post(client, session, "move", target="e", path=["d/a"], place="d")
    moves = [(one["source"], one["target"]) for one in guest.asked if one["op"] == "rename"]
    assert moves == [("d/a", "d/b"), ("d/a", "e/a")]
    assert "2 entries are deleted." in post(client, session, "delete", path=["a", "b"], place="")
    assert "Choose 1 to 1000 entries" in post(client, session, "delete", place="")
    guest.answers["remove"] = {"error": {"code": "mounted", "message": "The folder mounted at {x} lies there."}}
    assert "The folder mounted at {x} lies there." in post(client, session, "delete", path=["a"], place="")


def test_refusals_are_said_in_the_readers_language(
    cast: Cast, browse: Browse, guest: FakeGuest, session: ComputeSession
) -> None:
    User.objects.filter(pk=cast.alice.pk).update(language="ko")
    client = browse(User.objects.get(pk=cast.alice.pk))
    guest.answers["list"] = LISTING
    refused = FileRefused(
        "The folder mounted at {name} lies there: delete or move its files in the folder itself.",
        "mounted",
        name="데이터",
    )
    guest.answers["remove"] = {"error": refused.told()}
    shown = post(client, session, "delete", path=["a"], place="")
    assert "lies there" not in shown and "데이터" in shown and "마운트" in shown
    guest.answers["mkdir"] = {
        "error": {"code": "exists", "message": FileRefused("There is no such file.", "x").message}
    }
    assert "There is no such file." not in post(client, session, "make_directory", place="d", name="new")
    guest.answers["mkdir"] = {
        "error": {"code": "exists", "message": "ok", "told": {"text": "{a}" * 3000, "values": {"a": 1}}}
    }
    assert post(client, session, "make_directory", place="d", name="new")


def test_a_file_has_a_page_and_its_bytes_come_as_an_attachment(
    cast: Cast, browse: Browse, guest: FakeGuest, session: ComputeSession
) -> None:
    guest.answers["stat"] = ENTRY
    client = browse(cast.alice)
    answer = client.get(reverse("web:home_file", args=[session.pk]), {"path": "<b>a.txt"})
    assert (
        answer.status_code == 200 and b"<b>a.txt" not in answer.content and b"Open in a new tab" not in answer.content
    )
    policy = answer["Content-Security-Policy"]
    assert "img-src 'self' data: blob:" in policy and "connect-src 'self'" in policy
    way = client.get(reverse("web:home_lead", args=[session.pk]), {"path": "d/a b.txt"})
    assert way["Location"] == f"/api/v1/sessions/{session.pk}/files/d/a%20b.txt"
    del guest.answers["stat"]
    assert page(client, session, "home_file", path="gone")[0] == 404


def test_what_cannot_be_opened_says_why(cast: Cast, browse: Browse, guest: FakeGuest, session: ComputeSession) -> None:
    client = browse(cast.alice)
    waiting, batch = (
        make_session(cast.alice),
        make_running_session(cast.alice, session_type="batch", startup_command="x"),
    )
    assert "The home folder can be opened while the session runs." in page(client, waiting)[1]
    assert "Only the home folder of an interactive session" in page(client, batch)[1]
    guest.answers["list"] = {"error": {"code": "bad-request", "message": "There is no operation 'list'."}}
    assert "The guest agent of this session is of an older version." in page(client, session)[1]
    Agent.objects.update(gateway_url="http://127.0.0.1:9")
    assert "does not answer. Try again in a moment." in page(client, session)[1]
    assert page(browse(cast.charlie), session)[0] == 404
    assert "Upload files" not in page(client, waiting)[1]


def test_the_session_links_it_and_a_simulated_one_says_that_it_has_none(cast: Cast, browse: Browse) -> None:
    real = make_running_session(cast.alice)
    pretended = make_running_session(
        cast.alice, make_agent("pretends", backend="simulated", capabilities=["simulated"])
    )
    client = browse(cast.alice)
    assert f'id="files-button" href="/sessions/{real.pk}/home/"' in page(client, real, "session")[1]
    shown = page(client, pretended, "session")[1]
    assert "A simulated session has no files." in shown and '/home/"' not in shown


def test_its_questions_to_the_database_do_not_grow(
    cast: Cast, browse: Browse, guest: FakeGuest, session: ComputeSession, django_assert_max_num_queries: Any
) -> None:
    client = browse(cast.alice)
    guest.answers["list"] = {**LISTING, "entries": [ENTRY] * 200}
    with django_assert_max_num_queries(12):
        page(client, session)
