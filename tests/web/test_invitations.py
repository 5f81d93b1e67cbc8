"""Accepting an invitation in the browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.accounts.models import Invitation, Membership, User
from backendai.accounts.services import Invitee, invite, revoke_invitation
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
    assert made["Location"] == "/login/"
    assert client.post("/login/", {"username": NEW, "login": NEW, "password": PASSWORD}).status_code == 302
    assert User.objects.get(email=NEW).projects.get() == world.vision


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
        ("nonsense", "no such invitation"),
        ("expired", "has expired"),
        ("revoked", "was taken back"),
        ("used", "accepted already"),
        ("nothing opened", "no such invitation"),
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
    if what != "nothing opened":
        client.get("/invitations/nonsense/" if what == "nonsense" else link)
    answers: list[Any] = [client.get(ACCEPT), client.post(ACCEPT, {"password": PASSWORD, "again": PASSWORD})]
    for answer in answers:
        assert answer.status_code == 410
    assert words in answers[0].content.decode()
    assert not User.objects.filter(email=NEW).exists()
