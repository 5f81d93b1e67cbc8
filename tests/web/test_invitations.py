"""Accepting an invitation in the browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import Invitation, Login, Membership, User
from backendai.domain.accounts.services import Invitee, invite, revoke_invitation
from backendai.domain.activity.models import AuditEntry
from tests.accounts.world import World, make_world
from tests.cast import PASSWORD

pytestmark = pytest.mark.django_db

Browse = Callable[[User], Client]
ACCEPT = "/invitations/accept/"
NEW = "new@example.com"


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def link_to(world: World, email: str = NEW) -> str:
    _, text = invite(world.bob, world.vision, Invitee(email, full_name="Nora"), now=timezone.now())
    return f"/invitations/{text}/"


def test_a_newcomer_makes_an_account_and_signs_in(world: World) -> None:
    client, link = Client(), link_to(world)
    opened = client.get(link)
    assert (opened.status_code, opened["Location"], opened["Referrer-Policy"]) == (302, ACCEPT, "no-referrer")
    assert client.session.get_expiry_age() <= 900, "what a stranger makes the portal keep does not stay for weeks"
    assert "no-store" in opened["Cache-Control"]
    page = client.get(ACCEPT)
    assert "no-store" in page["Cache-Control"]
    shown = page.content.decode()
    assert link.split("/")[2] not in shown
    assert 'value="Nora"' in shown
    wrong = client.post(ACCEPT, {"full_name": "Nora", "password": PASSWORD, "again": "another"})
    assert (wrong.status_code, "again" in wrong.context["form"].errors) == (422, True)
    weak = client.post(ACCEPT, {"full_name": "Nora", "password": "short", "again": "short"})
    assert (weak.status_code, "password" in weak.context["form"].errors) == (422, True)
    made = client.post(ACCEPT, {"full_name": "Nora", "password": PASSWORD, "again": PASSWORD})
    assert made["Location"] == "/"
    page = client.get("/")
    assert page.status_code == 200 and "You are a member of project" in page.content.decode()
    nora = User.objects.get(email=NEW)
    assert nora.projects.get() == world.vision
    assert Login.objects.get().method == "password" and Login.objects.get().user == nora
    assert AuditEntry.objects.filter(action="user.sign-in", actor_id=nora.pk).count() == 1
    assert "invitation" not in client.session


def test_a_newcomer_sets_up_the_second_factor_that_the_site_demands(world: World, settings: Any) -> None:
    settings.REQUIRE_MFA = "all"
    client = Client()
    client.get(link_to(world))
    client.post(ACCEPT, {"full_name": "Nora", "password": PASSWORD, "again": PASSWORD})
    assert client.get("/")["Location"] == "/account/security/"
    page = client.get("/account/security/").content.decode()
    assert "You need a second factor here" in page and "/account/tokens/" not in page
    assert client.get("/api/v1/sessions/").json()["code"] == "second-factor-required"


def test_somebody_who_is_here_joins_as_whom_it_is_for(world: World, browse: Browse) -> None:
    link = link_to(world, "gina@example.com")
    stranger = Client()
    stranger.get(link)
    asked = stranger.get(ACCEPT).content.decode()
    assert f"/login/?next={ACCEPT}" in asked
    assert "password" not in asked.lower().split("<main")[1]
    other = browse(world.cast.alice)
    other.get(link)
    assert "this invitation is for gina@example.com" in other.get(ACCEPT).content.decode()
    assert other.post(ACCEPT).status_code == 409
    gina = browse(world.gina)
    gina.get(link)
    assert "Join the project" in gina.get(ACCEPT).content.decode()
    assert gina.post(ACCEPT)["Location"] == "/"
    assert Membership.objects.filter(user=world.gina, project=world.vision).count() == 1


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nonsense", "Invitation not found"),
        ("expired", "has expired"),
        ("revoked", "was revoked"),
        ("used", "already been accepted"),
        ("nothing opened", "Invitation not found"),
    ],
)
def test_a_link_that_leads_nowhere_says_why(world: World, what: str, words: str) -> None:
    client, link = Client(), link_to(world)
    rows = Invitation.objects.all()
    if what == "expired":
        rows.update(expires_at=timezone.now() - timedelta(minutes=1))
    elif what == "revoked":
        revoke_invitation(world.bob, rows.select_related("project").get(), now=timezone.now())
    elif what == "used":
        rows.update(accepted_at=timezone.now())
    answers: list[Any] = [client.get(ACCEPT), client.post(ACCEPT, {"password": PASSWORD, "again": PASSWORD})]
    if what != "nothing opened":
        answers.insert(0, client.get("/invitations/nonsense/" if what == "nonsense" else link))
    for answer in answers:
        assert answer.status_code == 410
    assert words in answers[0].content.decode()
    assert not User.objects.filter(email=NEW).exists()


def test_a_made_up_link_leaves_nothing_behind(client: Client, db: None) -> None:
    answer = client.get("/invitations/made-up/")
    assert answer.status_code == 410
    assert not Session.objects.exists()
