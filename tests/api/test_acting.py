"""Administrators launch and end sessions for others: for whom they may, whose it is then, and what is said of it."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import Membership, ResourcePolicy, User
from backendai.domain.accounts.services import create_person
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import PASSWORD, Cast
from tests.factories import make_agent, make_group, make_session

pytestmark = pytest.mark.django_db
PREVIEW, OWNERS = "/api/v1/session-preview/", "/api/v1/owners/"
FOR_ALICE = LAUNCH | {"owner": " Alice@Example.com "}


@pytest.fixture
def eve(cast: Cast, dana: Caller) -> Caller:
    """The admin of the domain of Alice, Bob and Dana."""
    return Caller(create_person("eve@example.com", password=PASSWORD, project=cast.project, role=User.Role.ADMIN))


def test_a_session_launched_for_somebody_is_theirs_and_counts_for_them(dana: Caller, cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="one", max_pending_sessions=1)
    cast.alice.save()
    body = dana.post(SESSIONS, FOR_ALICE | {"environ": {"SEED": "7"}}).json()
    session = ComputeSession.objects.get(pk=body["id"])
    assert (session.owner, session.launched_by) == (cast.alice, cast.dana)
    assert session.access_key == cast.alice.key_pairs.get().access_key
    assert session.project == cast.project
    assert (body["owner"], body["launched_by"], body["environ"]) == ("alice@example.com", "dana@example.com", None)
    refused = dana.post(SESSIONS, FOR_ALICE | {"name": "second"})
    assert (refused.status_code, refused.json()["code"]) == (409, "pending-limit")
    taken = Caller(cast.bob).post(SESSIONS, LAUNCH)
    assert (taken.status_code, taken.json()["launched_by"]) == (201, None)


def test_a_name_that_the_owner_has_already_is_refused_with_the_owners_name(dana: Caller, cast: Cast) -> None:
    make_session(cast.alice, name="train-1")
    refused = dana.post(SESSIONS, FOR_ALICE).json()
    assert (refused["code"], refused["field"]) == ("name-taken", "name")
    assert refused["detail"].startswith("alice@example.com already has a session named 'train-1'")


def test_the_owner_sees_on_every_page_who_launched_the_session(dana: Caller, cast: Cast) -> None:
    session = ComputeSession.objects.get(pk=dana.post(SESSIONS, FOR_ALICE).json()["id"])
    alice = Client()
    alice.force_login(cast.alice)
    page = alice.get(reverse("web:session", args=[session.pk])).content.decode()
    assert "launched by <bdi>dana@example.com</bdi>" in page
    page = alice.get(reverse("web:history", args=[session.pk])).content.decode()
    assert "Launched by dana@example.com for alice@example.com." in page
    caller = Caller(cast.alice)
    assert caller.get(f"{SESSIONS}{session.pk}/").json()["launched_by"] == "dana@example.com"
    history = caller.get(f"{SESSIONS}{session.pk}/history/").json()["results"]
    assert history[0]["message"] == "Launched by dana@example.com for alice@example.com."


def test_launching_and_ending_for_others_is_audited_with_both_names(dana: Caller, cast: Cast) -> None:
    body = dana.post(SESSIONS, FOR_ALICE).json()
    assert dana.post(f"{SESSIONS}{body['id']}/terminate/").status_code == 200
    names = {"actor": "dana@example.com", "owner": "alice@example.com"}
    for action in ("session.create", "session.terminate"):
        entry = AuditEntry.objects.get(action=action, target_id=body["id"])
        assert (entry.actor, entry.details["name"]) == (cast.dana, "train-1")
        assert {name: entry.details[name] for name in names} == names
    ended = ComputeSession.objects.get(pk=body["id"])
    assert (ended.status_reason, ended.status_message) == ("admin-requested", "Ended by dana@example.com.")


def test_what_one_does_for_oneself_names_nobody_twice(dana: Caller, cast: Cast) -> None:
    alice = Caller(cast.alice)
    body = alice.post(SESSIONS, FOR_ALICE).json()
    assert body["launched_by"] is None
    assert "owner" not in AuditEntry.objects.get(action="session.create").details


@pytest.mark.parametrize("path", [SESSIONS, PREVIEW])
def test_an_owner_whom_one_may_not_act_for_is_answered_as_one_that_does_not_exist(
    dana: Caller, eve: Caller, cast: Cast, path: str
) -> None:
    User.objects.create_user("gone@example.com", domain=cast.project.domain, is_active=False)
    foreign = {
        cast.alice: ["bob@example.com", "dana@example.com"],
        eve.user: ["charlie@example.com", "dana@example.com", "gone@example.com"],
        cast.dana: ["gone@example.com"],
    }
    for actor, owners in foreign.items():
        caller = Caller(actor)
        for owner in [*owners, "nobody@example.com"]:
            answer = caller.post(path, LAUNCH | {"owner": owner})
            body = answer.json()
            assert (answer.status_code, body["code"], body["field"]) == (404, "unknown-owner", "owner"), (actor, owner)
            assert body["detail"] == f"No user '{owner}', or you may not launch for them."
    assert not ComputeSession.objects.exists()


def test_a_domain_admin_acts_inside_the_domain_only(eve: Caller, cast: Cast) -> None:
    Membership.objects.create(user=cast.alice, project=cast.elsewhere)
    assert eve.post(SESSIONS, FOR_ALICE).status_code == 201
    refused = eve.post(SESSIONS, FOR_ALICE | {"name": "second", "project": cast.elsewhere.name})
    assert (refused.status_code, refused.json()["code"]) == (400, "no-project")
    shown = eve.get(OWNERS, email="alice@example.com").json()
    assert [project["name"] for project in shown["projects"]] == [cast.project.name]


def test_a_preview_for_somebody_looks_at_their_limits_and_writes_nothing(dana: Caller, cast: Cast) -> None:
    make_agent()
    cast.alice.policy = ResourcePolicy.objects.create(name="none", max_sessions=0)
    cast.alice.save()
    assert dana.post(PREVIEW, LAUNCH).json()["verdict"] == "starts-now"
    found = dana.post(PREVIEW, FOR_ALICE).json()
    assert (found["verdict"], found["reason"]["code"]) == ("never", "too-many-sessions")
    assert not ComputeSession.objects.exists()


def test_a_lookup_shows_the_persons_projects_and_groups_to_administrators_only(
    dana: Caller, eve: Caller, cast: Cast
) -> None:
    make_group("hers", is_public=False).projects.add(cast.project)
    make_group("closed", is_public=False)
    make_group("asleep", is_active=False)
    for caller in (dana, eve):
        found = caller.get(OWNERS, email="ALICE@example.com").json()
        assert found["email"] == "alice@example.com"
        assert [(project["name"], project["domain"]) for project in found["projects"]] == [("vision", "default")]
        assert found["resource_groups"] == ["default", "hers"]
    assert eve.get(OWNERS, email="charlie@example.com").status_code == 404
    assert Caller(cast.alice).get(OWNERS, email="alice@example.com").status_code == 404
    assert dana.get(OWNERS).json()["field"] == "email"


def test_a_repeated_key_makes_one_session_for_each_owner(dana: Caller, cast: Cast) -> None:
    key = {"Idempotency-Key": "k1"}
    first = dana.post(SESSIONS, FOR_ALICE, **key)
    again = dana.post(SESSIONS, FOR_ALICE, **key)
    own = dana.post(SESSIONS, LAUNCH, **key)
    assert [each.status_code for each in (first, again, own)] == [201, 200, 201]
    assert first.json()["id"] == again.json()["id"] != own.json()["id"]
