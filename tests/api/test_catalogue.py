"""Images, presets, resource groups, agents, oneself and tokens over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from backendai.domain.accounts.models import AccessToken
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.cluster.models import Agent
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session

pytestmark = pytest.mark.django_db


def test_it_shows_enabled_images_only(cast: Cast) -> None:
    make_image("python")
    make_image("retired", is_enabled=False)
    assert [row["name"] for row in Caller(cast.alice).get("/api/v1/images/").json()["results"]] == ["python"]
    assert len(Caller(cast.dana).get("/api/v1/images/").json()["results"]) == 2


def test_it_shows_presets_in_their_order(cast: Cast) -> None:
    hidden = make_group("hidden", is_public=False)
    for rank, (name, group) in enumerate([("zeta", None), ("alpha", make_group()), ("secret", hidden)]):
        ResourcePreset.objects.create(name=name, rank=rank, resource_group=group, slots={"cpu": 2, "mem": "4g"})
    rows = Caller(cast.alice).get("/api/v1/presets/").json()["results"]
    assert [(row["name"], row["resource_group"]) for row in rows] == [("zeta", None), ("alpha", "default")]
    assert rows[0]["resources"] == {"cpu": "2", "mem": str(4 * 2**30)}


def test_it_sums_the_room_over_agents_that_answer_and_take_sessions(cast: Cast) -> None:
    agent = make_agent(cpu=4, mem="8g")
    make_agent(cpu=2, mem="4g")
    make_agent(cpu=100, mem="1t", status=Agent.Status.LOST)
    make_agent(cpu=100, mem="1t", schedulable=False)
    make_running_session(cast.alice, agent, resources={"cpu": 4, "mem": "2g"})
    make_session(cast.bob)
    [group] = Caller(cast.charlie).get("/api/v1/resource-groups/").json()["results"]
    gib = 2**30
    assert (group["name"], group["agents"], group["pending"]) == ("default", 2, 1)
    assert group["capacity"] == {"cpu": "6", "mem": str(12 * gib)}
    assert group["occupied"] == {"cpu": "4", "mem": str(2 * gib)}
    assert group["free"] == {"cpu": "2", "mem": str(10 * gib)}


def test_it_shows_that_slots_come_back(cast: Cast) -> None:
    make_agent(cpu=4)
    session = make_session(cast.alice)
    alice = Caller(cast.alice)
    before = alice.get("/api/v1/resource-groups/").json()["results"][0]
    alice.post(f"{SESSIONS}{session.pk}/terminate/")
    after = alice.get("/api/v1/resource-groups/").json()["results"][0]
    assert (before["pending"], after["pending"]) == (1, 0)
    assert after["free"]["cpu"] == "4"


def test_it_counts_room_in_as_many_queries_for_many_groups(cast: Cast, django_assert_max_num_queries: Any) -> None:
    client = Client()
    client.force_login(cast.alice)
    for number in range(5):
        make_agent(group=make_group(f"group-{number}"))
    with django_assert_max_num_queries(6):
        assert len(client.get("/api/v1/resource-groups/").json()["results"]) == 5


def test_it_shows_machines(cast: Cast) -> None:
    agent = make_agent("node-1", notes=[{"code": "old-runc", "message": "runc is old.", "fix": "Update it."}])
    make_running_session(cast.alice, agent)
    dana = Caller(cast.dana)
    [row] = dana.get("/api/v1/agents/").json()["results"]
    assert (row["name"], row["occupied"]["cpu"], row["notes"][0]["fix"]) == ("node-1", "1", "Update it.")
    assert "token_digest" not in row
    assert dana.get(f"/api/v1/agents/{agent.pk}/").json() == row


def test_it_says_who_one_is(cast: Cast) -> None:
    me = Caller(cast.alice).get("/api/v1/me/").json()
    assert (me["email"], me["role"], me["domain"]) == ("alice@example.com", "user", "default")
    assert [project["name"] for project in me["projects"]] == ["vision"]
    assert "password" not in me


def test_it_says_a_token_once_and_it_works_until_revoked(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.alice)
    answer = client.post("/api/v1/tokens/", {"name": "laptop"}, content_type="application/json")
    assert answer.status_code == 201
    text, token_id = answer.json()["token"], answer.json()["id"]
    script = Client(headers={"Authorization": f"Bearer {text}"})
    listed = script.get("/api/v1/tokens/")
    assert [row["name"] for row in listed.json()["results"]] == ["laptop"]
    assert text not in listed.content.decode()
    assert not AccessToken.objects.filter(digest=text).exists()
    assert client.delete(f"/api/v1/tokens/{token_id}/").status_code == 204
    assert script.get("/api/v1/me/").status_code == 401
    assert client.delete(f"/api/v1/tokens/{token_id}/").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "x", "user": 1}, "user"),
    ],
)
def test_it_refuses_a_wrong_token_request_by_field(cast: Cast, body: dict[str, Any], field: str) -> None:
    answer = Caller(cast.alice).post("/api/v1/tokens/", body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_it_lets_nobody_see_or_revoke_the_token_of_another(cast: Cast) -> None:
    alice = Caller(cast.alice)
    token = AccessToken.objects.get(user=cast.alice)
    for other in (cast.bob, cast.dana):
        caller = Caller(other)
        assert str(token.pk) not in caller.get("/api/v1/tokens/").content.decode()
        assert caller.delete(f"/api/v1/tokens/{token.pk}/").status_code == 404
    assert alice.get("/api/v1/me/").status_code == 200
