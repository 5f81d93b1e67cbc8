"""People, projects, domains and invitations over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.domain.accounts.models import Invitation, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.services import NewUser, accept_as_new, create_user, digest_of
from tests.accounts.world import World, make_world
from tests.api.callers import Caller
from tests.cast import PASSWORD
from tests.factories import make_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
USERS, PROJECTS, DOMAINS, INVITATIONS = (f"/api/v1/{name}/" for name in ("users", "projects", "domains", "invitations"))
HOSTILE = "<script>alert(1)</script>\u202e" + "🦉" * 64


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def emails(answer: Any) -> list[str]:
    return [row["email"].partition("@")[0] for row in answer.json()["results"]]


def test_people_are_listed_for_those_who_rule_them(world: World) -> None:
    dana, erin, bob = Caller(world.cast.dana), Caller(world.erin), Caller(world.bob)
    assert emails(dana.get(USERS)) == ["alice", "bob", "charlie", "dana", "erin", "frank", "gina"]
    assert emails(erin.get(USERS)) == ["alice", "bob", "dana", "erin", "frank", "gina"]
    assert emails(bob.get(USERS)) == ["bob"]
    assert emails(dana.get(USERS, role=["admin", "superadmin"])) == ["dana", "erin", "frank"]
    assert emails(dana.get(USERS, project=str(world.vision.pk))) == ["alice", "bob", "dana"]
    assert emails(dana.get(USERS, domain="elsewhere")) == ["charlie"]
    assert emails(dana.get(USERS, search="LIE@")) == ["charlie"]
    assert emails(dana.get(USERS, active="false")) == []
    assert dana.get(USERS, role="king").json()["field"] == "role"
    page = dana.get(USERS, page_size=3).json()
    assert emails(dana.get(page["next"])) == ["dana", "erin", "frank"]


def test_a_person_is_made_changed_and_let_in_or_not(world: World) -> None:
    ResourcePolicy.objects.create(name="students", max_sessions=2)
    erin = Caller(world.erin)
    made = erin.post(
        USERS, {"email": "New@Example.com", "full_name": HOSTILE, "policy": "students", "projects": ["vision"]}
    )
    assert made.status_code == 201
    shown = made.json()
    assert (shown["email"], shown["full_name"], shown["domain"]) == ("new@example.com", HOSTILE, "default")
    assert (shown["policy"], shown["projects"], shown["role"]) == ("students", ["vision"], "user")
    assert "password" not in shown
    address = f"{USERS}{shown['id']}/"
    changed = erin.patch(address, {"full_name": "Nora", "policy": None})
    assert (changed.json()["full_name"], changed.json()["policy"]) == ("Nora", None)
    assert erin.post(f"{address}deactivate/").json()["is_active"] is False
    assert erin.post(f"{address}activate/").json()["is_active"] is True
    assert erin.post(f"{address}password/", {"password": "short"}).json()["code"] == "weak-password"
    assert erin.post(f"{address}password/", {"password": PASSWORD}).status_code == 204
    assert User.objects.get(email="new@example.com").check_password(PASSWORD)


def test_two_who_change_the_same_person_do_not_overwrite_each_other(world: World) -> None:
    erin, dana = Caller(world.erin), Caller(world.cast.dana)
    for address, change in (
        (f"{USERS}{world.gina.pk}/", {"full_name": "Gina"}),
        (f"{PROJECTS}{world.vision.pk}/", {"name": "sight"}),
        (f"{DOMAINS}{world.domain.pk}/", {"name": "physics"}),
    ):
        tag = dana.get(address)["ETag"]
        first = dana.patch(address, change, **{"If-Match": tag})
        assert (first.status_code, first["ETag"] != tag) == (200, True)
        late = dana.patch(address, change, **{"If-Match": tag})
        assert (late.status_code, late.json()["code"]) == (412, "changed-meanwhile")
        assert dana.patch(address, change, **{"If-Match": f"{first['ETag']}, {tag}"}).status_code == 200
    assert erin.get(f"{USERS}{world.gina.pk}/")["ETag"] == dana.get(f"{USERS}{world.gina.pk}/")["ETag"]


@pytest.mark.parametrize(
    ("who", "body", "status", "code", "field"),
    [
        ("erin", {"role": "superadmin"}, 403, "above-own-role", "role"),
        ("erin", {"share_weight": 5}, 403, "not-allowed", None),
        ("erin", {"domain": "elsewhere"}, 400, "unknown-domain", "domain"),
        ("dana", {"domain": "elsewhere"}, 409, "in-old-projects", "domain"),
        ("dana", {"policy": "none"}, 400, "unknown-policy", "policy"),
        ("dana", {"email": "bob@example.com"}, 409, "email-taken", "email"),
        ("dana", {"share_weight": -1}, 400, "invalid-request", "share_weight"),
        ("dana", {"is_superuser": True}, 400, "invalid-request", "is_superuser"),
        ("alice", {"full_name": "Me"}, 403, "not-allowed", None),
        ("bob", {"full_name": "Her"}, 404, "not-found", None),
    ],
)
def test_a_wrong_change_is_refused(
    world: World, who: str, body: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    before = User.objects.values().get(pk=world.cast.alice.pk)
    answer = Caller(world.person(who)).patch(f"{USERS}{world.cast.alice.pk}/", body)
    assert (answer.status_code, answer.json()["code"], answer.json().get("field")) == (status, code, field)
    assert User.objects.values().get(pk=world.cast.alice.pk) == before


def test_a_purge_names_what_still_runs(world: World) -> None:
    make_session(world.cast.alice)
    dana, address = Caller(world.cast.dana), f"{USERS}{world.cast.alice.pk}/"
    dana.post(f"{address}deactivate/")
    refused = dana.post(f"{address}purge/", {"email": "alice@example.com"})
    assert (refused.status_code, refused.json()["data"]["sessions"]) == (409, {"PENDING": 1})
    gina = f"{USERS}{world.gina.pk}/"
    dana.post(f"{gina}deactivate/")
    assert dana.post(f"{gina}purge/", {"email": "gina@example.com"}).status_code == 204
    assert dana.get(gina).status_code == 404


def test_projects_and_their_members(world: World) -> None:
    bob, erin, alice = Caller(world.bob), Caller(world.erin), Caller(world.cast.alice)
    names = [[row["name"] for row in one.get(PROJECTS).json()["results"]] for one in (bob, erin, alice)]
    assert names == [["vision"], ["speech", "vision"], ["vision"]]
    members = f"{PROJECTS}{world.vision.pk}/members/"
    assert alice.get(members).status_code == 404
    assert bob.post(members, {"email": "gina@example.com"}).json()["role"] == "member"
    assert bob.get(f"{PROJECTS}{world.vision.pk}/").json()["members"] == 4
    assert len(bob.get(members).json()["results"]) == 4
    assert bob.patch(f"{members}{world.gina.pk}/", {"role": "admin"}).json()["role"] == "admin"
    assert bob.delete(f"{members}{world.gina.pk}/").status_code == 204
    assert bob.delete(f"{members}{world.gina.pk}/").status_code == 404
    made = erin.post(PROJECTS, {"name": "new"})
    assert made.status_code == 201
    assert erin.delete(f"{PROJECTS}{made.json()['id']}/").status_code == 204
    assert bob.patch(f"{PROJECTS}{world.vision.pk}/", {"name": "mine"}).status_code == 403
    assert bob.post(PROJECTS, {"name": "mine"}).status_code == 403
    assert Project.objects.filter(name="mine").count() == 0


def test_domains_are_for_superadmins_to_change(world: World) -> None:
    dana, erin = Caller(world.cast.dana), Caller(world.erin)
    assert [row["name"] for row in erin.get(DOMAINS).json()["results"]] == ["default"]
    assert erin.post(DOMAINS, {"name": "physics"}).status_code == 403
    made = dana.post(DOMAINS, {"name": "physics"})
    address = f"{DOMAINS}{made.json()['id']}/"
    assert dana.patch(address, {"is_active": False}).json()["is_active"] is False
    assert erin.get(address).status_code == 404
    assert dana.delete(address).status_code == 204
    refused = dana.delete(f"{DOMAINS}{world.elsewhere.pk}/")
    assert (refused.status_code, refused.json()["data"]["used_by"]) == (409, {"user": 1, "project": 1})


def test_the_link_of_an_invitation_is_said_once_and_mailed_where_there_is_a_server(world: World, settings: Any) -> None:
    bob = Caller(world.bob)
    made = bob.post(INVITATIONS, {"email": "new@example.com", "project": "vision", "days": 3})
    assert (made.status_code, made["Cache-Control"], made.json()["mailed"]) == (201, "no-store", False)
    link = made.json()["link"]
    text = link.rstrip("/").rpartition("/")[2]
    assert link == f"{settings.PORTAL_URL}/invitations/{text}/"
    assert text not in bob.get(INVITATIONS).content.decode()
    assert mail.outbox == []
    settings.EMAIL_URL = "smtp://mail.example.org"
    again = bob.post(INVITATIONS, {"email": "new@example.com", "project": str(world.vision.pk)})
    assert again.json()["mailed"] is True
    [sent] = mail.outbox
    assert (sent.to, again.json()["link"] in sent.body) == (["new@example.com"], True)
    states = [row["state"] for row in bob.get(INVITATIONS, email="NEW@example.com").json()["results"]]
    assert states == ["open", "revoked"]
    assert len(bob.get(INVITATIONS, state="open").json()["results"]) == 1
    assert Caller(world.cast.alice).get(INVITATIONS).json()["results"] == []
    address = f"{INVITATIONS}{again.json()['id']}/"
    assert Caller(world.cast.alice).delete(address).status_code == 404
    assert bob.delete(address).status_code == 204
    assert bob.delete(address).json()["code"] == "not-open"
    assert bob.post(INVITATIONS, {"email": "new@example.com", "project": "speech"}).json()["field"] == "project"


def test_a_mail_server_that_refuses_leaves_the_link(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMAIL_URL = "smtp://mail.example.org"

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr("backendai.domain.accounts.invitation_links.send_mail", refuse)
    made = Caller(world.bob).post(INVITATIONS, {"email": "new@example.com", "project": "vision"}).json()
    assert made["mailed"] is False
    text = made["link"].rstrip("/").rpartition("/")[2]
    assert accept_as_new(digest_of(text), full_name="", password=PASSWORD, now=timezone.now()).email == made["email"]


def test_lists_take_the_same_number_of_queries_however_long(
    world: World, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = Client()
    client.force_login(world.cast.dana)
    for lap in range(2):
        for path, number in ((USERS, 4), (PROJECTS, 3), (DOMAINS, 3), (INVITATIONS, 3)):
            with django_assert_num_queries(number):  # login session, user, rows, the people's projects
                assert client.get(path).status_code == 200
        for number in range(5):
            create_user(world.cast.dana, NewUser(f"p{lap}-{number}@example.com", domain=world.domain))
            project = Project.objects.create(domain=world.domain, name=f"p{lap}-{number}")
            Membership.objects.create(user=world.gina, project=project)
            Invitation.objects.create(
                email="x@example.com", project=project, digest=f"{lap}{number}", expires_at=timezone.now()
            )
