"""What a share opens, at every address of sessions: exactly what its right says."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AccessNotice, AuditEntry
from backendai.domain.compute.models import ComputeSession, SessionShare
from backendai.domain.compute.services.launching.sharing import share_session
from tests.api.callers import Caller
from tests.pages import markup
from tests.test_census import TABLE, World, ask, lasting_world, world

__all__ = ["lasting_world", "world"]

PAGES, REST = "sessions/<uuid:session_id>/", "api/v1/sessions/<uuid:session_id>/"
VIEW = {PAGES, REST}
VIEW |= {f"{PAGES}{part}/" for part in ("row", "panel", "history", "info", "log", "usage", "disk")}
VIEW |= {f"{REST}{part}/" for part in ("logs", "history", "kernels", "usage")}
USE = {f"{PAGES}console/", f"{PAGES}apps/", f"{PAGES}apps/<slug:service>/", "apps/<slug:label>/"}
USE |= {route for route in TABLE if route.startswith(f"{PAGES}home/")}
USE |= {f"{REST}apps/", f"{REST}apps/<slug:service>/"}
USE |= {
    route
    for route in TABLE
    for part in (
        "runs/", "contexts/", "languages/", "complete/", "execute/", "entries/", "entry/", "search/", "directories/",
        "moves/", "deletions/", "archive/", "files/",
    )
    if route.startswith(REST + part)
}  # fmt: skip
ROUTES = [route for route in TABLE if "session_id" in route or route == "apps/<slug:label>/"]
OF_OTHERS = [route for route in ROUTES if "folder_id" not in route and "notifications/" not in route]


def share(world: World, right: str, user: User | None = None) -> SessionShare:
    return share_session(
        world.session, world.cast.alice, right, email=(user or world.cast.bob).email, now=timezone.now()
    )


def rights_for(route: str) -> set[str]:
    return {"view", "use"} if route in VIEW else {"use"} if route in USE else set()


@pytest.mark.django_db
@pytest.mark.parametrize("route", OF_OTHERS)
def test_a_share_opens_exactly_what_its_right_says(world: World, route: str) -> None:
    """Guests get what the owner gets, where the right opens the address; elsewhere it is not there for them."""
    for method in TABLE[route][1].split():
        for right in ("view", "use"):
            share(world, right)
            before = world.state()
            theirs, hers = tried(world, "bob", method, route), tried(world, "alice", method, route)
            if right in rights_for(route):
                assert theirs == hers, (method, right)
                assert theirs not in (401, 403), (method, right)
            else:
                assert theirs in (403, 404), (method, right)
                assert world.state() == before, "a guest changed something"
            assert tried(world, "charlie", method, route) == 404, (method, right)


def tried(world: World, who: str, method: str, route: str) -> int:
    """Return the status of an answer, and forget what the request did."""
    with transaction.atomic():
        answer = ask(world, who, method, route)
        if answer.streaming:
            answer.close()
        transaction.set_rollback(True)
    return int(answer.status_code)


def test_the_table_names_addresses_that_are_there() -> None:
    assert set(ROUTES) >= VIEW | USE


@pytest.mark.django_db
@pytest.mark.parametrize("right", ["view", "use"])
def test_guests_act_on_no_list_and_see_no_values(world: World, right: str) -> None:
    cast, session = world.cast, world.session
    ComputeSession.objects.filter(pk=session.pk).update(
        environ={"TOKEN": "s3cret"}, spec={"parameters": {"a": "s3cret"}}
    )
    share(world, right)
    before, bob, pk = world.state(), world.browsers["bob"], str(session.pk)
    for path in ("/sessions/terminate/", "/sessions/keep/"):
        bob.post(path, {"session": [pk]})
    api = Caller(cast.bob)
    assert api.post("/api/v1/sessions/terminate/", {"sessions": [pk]}).json()["refused"][0]["name"] == ""
    assert [row for row in world.state()[:2]] == before[:2]
    for path in (f"/sessions/{pk}/", f"/sessions/{pk}/panel/", f"/sessions/{pk}/info/", f"/sessions/new/?like={pk}"):
        text = bob.get(path).content.decode()
        assert "s3cret" not in text, path
        assert f"/sessions/{pk}/terminate/" not in text, path
    detail = api.get(f"/api/v1/sessions/{pk}/").json()
    assert (detail["environ"], detail["parameters"], detail["owner"]) == (None, None, cast.alice.email)
    assert api.get("/api/v1/sessions/").json()["results"] == []
    (listed,) = api.get("/api/v1/sessions/", shared="true").json()["results"]
    assert (listed["id"], listed["environ"]) == (pk, None)
    assert Caller(cast.charlie).get("/api/v1/sessions/", shared="true").json()["results"] == []
    status = api.get(f"/api/v1/sessions/{pk}/logs/", app="notes").status_code
    assert status == 404 if right == "view" else status in (200, 404)


@pytest.mark.django_db
def test_owner_and_guest_see_the_share_and_the_guest_is_told_once(world: World) -> None:
    cast, alice, bob, pk = world.cast, world.browsers["alice"], world.browsers["bob"], world.session.pk
    answer = alice.post(f"/sessions/{pk}/sharing/", {"email": " Bob@example.com", "right": "view"})
    assert answer.status_code == 302, answer.content
    answer = alice.post(f"/sessions/{pk}/sharing/", {"email": cast.charlie.email, "right": "view"})
    assert "No other account" in answer.content.decode()
    assert cast.bob.email in markup(alice.get(f"/sessions/{pk}/"))
    shown = markup(bob.get(f"/sessions/{pk}/"))
    assert "Shared by" in shown and cast.alice.email in shown and "you can view it" in shown
    assert "terminal-button" not in shown and "apps-button" not in shown and "Move the end" not in shown
    assert "cannot type in it" in shown
    assert cast.alice.email in markup(bob.get("/?whose=shared"))
    assert str(pk) not in markup(bob.get("/"))
    notice = AccessNotice.objects.get(owner=cast.bob, subject_type="session")
    assert (
        str(notice.message) == f"{cast.alice.email} shares the session {world.session.name} with you: you can view it."
    )
    notice.delete()
    alice.post(f"/sessions/{pk}/sharing/", {"email": cast.bob.email, "right": "view"})
    assert not AccessNotice.objects.filter(owner=cast.bob, subject_type="session").exists(), "told once"
    share(world, "use")
    assert f"/sessions/{pk}/apps/" in markup(bob.get(f"/sessions/{pk}/"))
    mine = SessionShare.objects.get(user=cast.bob)
    assert alice.post(f"/sessions/{pk}/sharing/{mine.pk}/stop/").status_code == 302
    assert bob.get(f"/sessions/{pk}/").status_code == 404
    assert not AccessNotice.objects.filter(owner=cast.bob, subject_type="session").exists()
    entries = AuditEntry.objects.filter(target_id=str(pk), action__startswith="session.").order_by("id")
    assert [one.action for one in entries][-3:] == ["session.share", "session.share", "session.unshare"]
