"""Inference endpoints by REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from backendai.domain.activity.models import AuditEntry
from backendai.domain.serving.models import Endpoint, EndpointToken, State
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_group, make_image
from tests.serving.world import World, make_endpoint, states_of

pytestmark = pytest.mark.django_db
URL = "/api/v1/endpoints/"
NEW: dict[str, Any] = {
    "name": "chat",
    "image": "python",
    "command": "serve",
    "resources": {"cpu": 1, "mem": "512m"},
    "maximum": 2,
}


@pytest.fixture
def alice(cast: Cast) -> Client:
    make_group()
    make_image()
    client = Client()
    client.force_login(cast.alice)
    return client


def post(client: Client, url: str, said: Any = None, **headers: str) -> Any:
    return client.post(url, said or {}, content_type="application/json", headers=headers)


def test_two_who_change_the_same_endpoint_do_not_overwrite_each_other(cast: Cast, alice: Client) -> None:
    caller = Caller(cast.alice)
    url = f"{URL}{caller.post(URL, NEW).json()['id']}/"
    tag = caller.get(url)["ETag"]
    Endpoint.objects.update(desired=3)  # as scaling does
    assert caller.get(url)["ETag"] == tag
    first = caller.patch(url, {"maximum": 5}, **{"If-Match": tag})
    assert (first.status_code, first["ETag"] != tag) == (200, True)
    late = caller.patch(url, {"target": 9}, **{"If-Match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "changed-meanwhile")
    assert caller.patch(url, {"target": 9}, **{"If-Match": first["ETag"]}).json()["target"] == 9


def test_an_endpoint_is_created_read_changed_and_deleted(alice: Client, cast: Cast) -> None:
    made = post(alice, URL, NEW, **{"Idempotency-Key": "one"})
    assert made.status_code == 201, made.content
    again = post(alice, URL, NEW, **{"Idempotency-Key": "one"})
    assert (again.status_code, again.json()["id"]) == (201, made.json()["id"])
    url = f"{URL}{made.json()['id']}/"
    assert made.json()["health"] == "starting"
    assert made.json()["url"].startswith("http://chat-")
    changed = alice.patch(url, {"maximum": 5}, content_type="application/json")
    assert (changed.status_code, changed.json()["maximum"]) == (200, 5)
    assert alice.get(URL).json()["results"][0]["maximum"] == 5
    slept = alice.patch(url, {"asleep_after": 60}, content_type="application/json")
    assert (slept.status_code, slept.json()["asleep_after"]) == (200, 60)
    assert alice.patch(url, {"asleep_after": 0}, content_type="application/json").status_code == 400
    assert alice.delete(url).status_code == 204
    assert alice.get(url).status_code == 404
    actions = AuditEntry.objects.filter(target_type="endpoint").values_list("action", flat=True)
    assert {"endpoint.create", "endpoint.change", "endpoint.delete"} <= set(actions)


def test_what_is_wrong_is_refused_at_its_field_with_nothing_written(alice: Client) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "Chat"}, "name"),
        ({"minimum": 3}, "minimum"),
        ({"target": 0}, "target"),
        ({"image": "none"}, "image"),
        ({"model_name": "m" * 10_000}, "model_name"),
    ]
    for over, field in wrong:
        for url in (URL, "/api/v1/endpoint-preview/"):
            answer = post(alice, url, NEW | over)
            assert answer.status_code == 400, answer.content
            assert field in str(answer.json())
    assert not Endpoint.objects.exists()


def test_a_preview_says_what_it_would_take_and_writes_nothing(alice: Client) -> None:
    answer = post(alice, "/api/v1/endpoint-preview/", NEW)
    assert answer.status_code == 200, answer.content
    assert answer.json()["at_most"] == {"cpu": "2", "mem": str(2**30)}
    assert not Endpoint.objects.exists()


def test_a_token_is_told_once_and_can_be_revoked(alice: Client, cast: Cast) -> None:
    url = f"{URL}{make_endpoint(cast.alice).pk}/tokens/"
    made = post(alice, url, {"name": "laptop", "per_minute": 60})
    assert made.status_code == 201, made.content
    text = made.json()["token"]
    assert text not in alice.get(url).content.decode()
    assert not EndpointToken.objects.filter(digest=text).exists()
    assert alice.delete(f"{url}{made.json()['id']}/").status_code == 204
    assert alice.get(url).json()["results"][0]["revoked_at"]


def test_explanation_replicas_history_and_metrics_of_a_living_endpoint(alice: Client, cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, maximum=2), World(cast.alice)
    world.until(lambda: [state for *_, state in states_of(endpoint)] == [State.READY])
    url = f"{URL}{endpoint.pk}/"
    assert alice.get(url).json()["health"] == "serving"
    said = alice.get(f"{url}explain/").json()
    assert (said["desired"], said["starts"], said["drains"]) == (1, 0, 0)
    assert said["scaling"]["code"] in ("at-target", "at-min", "blind")
    replica = alice.get(f"{url}replicas/").json()["results"][0]
    assert (replica["state"], replica["is_answering"], replica["agents"]) == ("ready", True, ["a1"])
    assert alice.get(f"{url}history/").json()["results"][-1]["code"] == "created"
    rules = alice.put(f"{url}rules/", {"rules": [{"metric": "latency", "up_over": 2}]}, content_type="application/json")
    assert rules.json()["results"][0]["metric"] == "latency"
    update = post(alice, f"{url}revisions/", {name: NEW[name] for name in ("image", "command", "resources")})
    assert update.json()["number"] == 2
    assert alice.get(url).json()["next_revision"] == 2
    assert post(alice, f"{url}roll-back/", {"revision": 1}).json()["next_revision"] is None
    assert alice.get(f"{url}metrics/").status_code == 200


def test_a_list_takes_the_same_number_of_queries_for_one_and_for_many(alice: Client, cast: Cast) -> None:
    make_endpoint(cast.alice, "first")
    alice.get(URL)
    with CaptureQueriesContext(connection) as few:
        alice.get(URL)
    for number in range(4):
        make_endpoint(cast.alice, f"more-{number}")
    with CaptureQueriesContext(connection) as many:
        alice.get(URL)
    assert len(many) == len(few)
