"""Who is refused under the prefix, and in which form: never a page, always one sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.test import Client

from backendai.domain.accounts.models import SeenSignature
from backendai.domain.compute.models import ComputeSession
from backendai.ops.checks import check_compat
from backendai.portal.compat import sessions
from backendai.portal.realtime.places import Places
from tests.api.callers import Caller
from tests.cast import Cast
from tests.compat.callers import Signer
from tests.factories import make_group, make_image, make_running_session, make_session

pytestmark = pytest.mark.django_db(transaction=True)
ANNOUNCEMENT = "/manager/announcement"


def problem_of(answer: Any) -> tuple[int, str, str]:
    """Return status, slug and sentence, of an answer in the client's form."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    body = answer.json()
    assert body["title"].endswith("."), body
    return answer.status_code, body["type"].removeprefix("https://api.backend.ai/probs/"), body["title"]


def test_the_handshake_is_open_and_everything_else_asks_for_a_signature(cast: Cast) -> None:
    for path in ("/compat", "/compat/"):
        assert Client().get(path).json() == {"version": "v7.20230615", "manager": "23.09.10"}
    assert problem_of(Client().get("/compat/manager/announcement"))[:2] == (401, "auth-failed")
    browser = Client()
    browser.force_login(cast.alice)
    assert browser.get("/compat/manager/announcement").status_code == 401, "a login does not count"
    assert Caller(cast.alice).get("/compat/manager/announcement").status_code == 401, "nor does a token"
    assert Signer(cast.alice).get(ANNOUNCEMENT).json() == {"enabled": False, "message": ""}


def test_a_room_that_is_off_answers_404(cast: Cast, settings: Any) -> None:
    settings.COMPAT = False
    for answer in (Client().get("/compat"), Signer(cast.alice).get(ANNOUNCEMENT), Signer(cast.alice).post("/session")):
        assert problem_of(answer)[:2] == (404, "object-not-found")
    assert not SeenSignature.objects.exists()


def test_a_wrong_secret_a_wrong_clock_and_a_second_use_are_refused(cast: Cast) -> None:
    alice, path = Signer(cast.alice), f"/compat{ANNOUNCEMENT}"
    guessed = alice.headers("GET", path, "text/plain", secret="guessed")
    assert problem_of(alice.get(ANNOUNCEMENT, given=guessed))[:2] == (401, "auth-failed")
    late = alice.headers("GET", path, "text/plain", date=(datetime.now(UTC) - timedelta(minutes=6)).isoformat())
    status, _, sentence = problem_of(alice.get(ANNOUNCEMENT, given=late))
    assert (status, "behind the portal's clock" in sentence) == (401, True)
    once = alice.headers("GET", path, "text/plain")
    assert alice.get(ANNOUNCEMENT, given=once).status_code == 200
    again = alice.get(ANNOUNCEMENT, given=once)
    assert (again.status_code, again.json()["code"]) == (401, "signature-used")


def test_a_body_that_is_not_signed_is_taken_by_https_or_from_this_machine_only(cast: Cast) -> None:
    alice, query = Signer(cast.alice), {"query": "{keypair{user_id}}"}
    assert alice.post("/admin/gql", query).status_code == 200
    ways: list[tuple[dict[str, Any], int]] = [
        ({"REMOTE_ADDR": "192.0.2.1"}, 401),
        ({"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "192.0.2.1"}, 401),
        ({"REMOTE_ADDR": "192.0.2.1", "secure": True}, 200),
        ({"REMOTE_ADDR": "::1"}, 200),
    ]
    for meta, status in ways:
        answer = alice.post("/admin/gql", query, **meta)
        assert answer.status_code == status, meta
        if status == 401:
            assert answer.json()["code"] == "https-needed" and "HTTPS" in answer.json()["title"]


def test_the_api_still_wants_a_signature_of_the_real_body(cast: Cast) -> None:
    alice = Signer(cast.alice)
    make_group(), make_image()
    body = {"image": "python", "name": "train-1", "resources": {"cpu": 1, "mem": "512m"}}
    path = "/api/v1/sessions/"
    headers = alice.headers("POST", path, "application/json")
    answer = Client().post(path, body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid-signature")
    assert not ComputeSession.objects.exists()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/services"), ("PATCH", "/session/mine"), ("GET", "/no/such/thing"), ("DELETE", "/admin/gql"),
        ("PUT", "/manager/status"), ("POST", "/template/session"),
    ],
)  # fmt: skip
def test_what_the_platform_does_not_have_is_said_with_501(cast: Cast, method: str, path: str) -> None:
    status, slug, sentence = problem_of(Signer(cast.alice).ask(method, path))
    assert (status, slug) == (501, "not-implemented")
    assert sentence.startswith(("This platform does not offer", "Sessions are not restarted"))


def test_nothing_answers_with_a_page(cast: Cast, settings: Any) -> None:
    alice = Signer(cast.alice)
    assert problem_of(alice.ask("TRACE", "/session"))[0] == 405
    assert problem_of(alice.get(f"{ANNOUNCEMENT}?a=%00"))[0] == 400, "a middleware refuses it"
    assert problem_of(alice.get("/session/nobody/logs"))[:2] == (404, "object-not-found")
    assert problem_of(alice.post("/session", ["a list"]))[0] == 400
    with mock.patch.object(sessions, "current_announcements", side_effect=ZeroDivisionError):
        assert problem_of(alice.get(ANNOUNCEMENT))[:2] == (500, "internal-server-error")
    settings.ALLOWED_HOSTS = ["elsewhere"]
    assert problem_of(Client().get("/compat/manager/announcement"))[0] == 400
    with mock.patch("backendai.portal.api.frame.authentication.check_stranger_rate", side_effect=ZeroDivisionError):
        client = Client(raise_request_exception=False)
        assert problem_of(client.get("/compat", headers={"Host": "elsewhere"}))[0] == 500


def test_sessions_of_others_are_unknown_by_name_and_by_id(cast: Cast) -> None:
    theirs = make_running_session(cast.alice, name="private")
    bob = Signer(cast.bob)
    for name in ("private", "priv", str(theirs.pk), theirs.pk.hex):
        for method, path in (
            ("DELETE", ""),
            ("GET", "/logs"),
            ("GET", "/status-history"),
            ("GET", "/files"),
        ):
            answer = bob.ask(method, f"/session/{name}{path}?owner_access_key={cast.alice.key_pairs.first().pk}")
            assert problem_of(answer)[:2] == (404, "object-not-found"), (method, path)
    assert bob.query("query($id: UUID!){compute_session_list{total_count}}") == {
        "compute_session_list": {"total_count": 0}
    }
    asked = bob.post("/admin/gql", {"query": f'{{compute_session(id: "{theirs.pk}"){{name}}}}'})
    assert problem_of(asked)[:2] == (404, "object-not-found")
    theirs.refresh_from_db()
    assert (
        theirs.is_running
        and "running" in Signer(cast.dana).get(f"/session/{theirs.pk}/status-history").json()["result"]
    )


def test_another_persons_access_key_follows_the_rules_of_launches_for_others(cast: Cast) -> None:
    make_group(), make_image()
    body = {"image": "python", "name": "train-1", "enqueueOnly": True, "config": {"resources": {"cpu": 1}}}
    body["owner_access_key"] = cast.alice.key_pairs.first().pk
    unknown = Signer(cast.bob).post("/session", body)
    assert unknown.status_code == 404 and not ComputeSession.objects.exists()
    assert Signer(cast.dana).post("/session", body).status_code == 201
    assert ComputeSession.objects.get().owner == cast.alice


def test_answers_that_wait_are_counted_for_each_person(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.portal.compat.frame.MOST_HELD", 1)
    make_session(cast.alice, name="first-1")
    places = Places()
    places.take(("compat", str(cast.alice.pk)), 1, "requests")
    try:
        assert problem_of(Signer(cast.alice).ask("DELETE", "/session/first-1"))[0] == 429
    finally:
        places.leave()
    assert Signer(cast.alice).ask("DELETE", "/session/first-1").json() == {"stats": {"status": "cancelled"}}


def test_the_check_warns_of_a_room_that_others_cannot_enter(settings: Any) -> None:
    settings.SECURE, settings.LISTENS_HERE_ONLY = False, False
    assert [one.id for one in check_compat()] == ["portal.W014"]
    settings.SECURE = True
    assert check_compat() == []
