"""Presets over REST, and whether there is room for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.catalog.models import ResourcePreset
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session

pytestmark = pytest.mark.django_db
PRESETS, CHECK = "/api/v1/presets/", "/api/v1/check-presets/"
SMALL = {"name": "small", "resources": {"cpu": 1, "mem": "1g"}}


def patch(caller: Caller, path: str, body: Any) -> Any:
    return caller._client.patch(path, json.dumps(body), content_type="application/json")


def test_superadmins_write_them_and_others_read(cast: Cast) -> None:
    make_group()
    dana, alice = Caller(cast.dana), Caller(cast.alice)
    answer = dana.post(PRESETS, SMALL | {"resource_group": "default", "rank": 3})
    assert (answer.status_code, answer.json()["resources"]) == (201, {"cpu": "1", "mem": str(2**30)})
    path = f"{PRESETS}{answer.json()['id']}/"
    assert dana.post(PRESETS, SMALL | {"resource_group": "default"}).json()["code"] == "name-taken"
    assert dana.post(PRESETS, SMALL | {"resource_group": "nowhere"}).json()["code"] == "unknown-resource-group"
    answer = dana.post(PRESETS, SMALL | {"name": "b", "shm_bytes": 2**30})
    assert (answer.status_code, answer.json()["field"]) == (400, "shm_bytes")
    answer = patch(dana, path, {"resources": {"cpu": "1.5"}})
    assert (answer.json()["resources"], answer.json()["rank"]) == ({"cpu": "1.5"}, 3)
    assert patch(dana, path, {"resource_group": None}).json()["resource_group"] is None
    assert alice.get(path).json()["name"] == "small"
    for refused in (alice.post(PRESETS, SMALL), patch(alice, path, {"rank": 1}), alice.delete(path)):
        assert (refused.status_code, refused.json()["code"]) == (403, "permission-denied")
    assert dana.delete(path).status_code == 204
    assert not ResourcePreset.objects.exists()


def test_it_tells_what_is_left_with_null_for_unlimited(cast: Cast) -> None:
    make_running_session(cast.alice, make_agent(cpu=4, mem="8g"), resources={"cpu": 3, "mem": "1g"})
    ResourcePreset.objects.create(name="two", slots={"cpu": 2, "mem": "1g"})
    cast.alice.policy = ResourcePolicy.objects.create(name="quota", slots={"cpu": 4}, max_sessions=3)
    cast.alice.save()
    body = Caller(cast.alice).post(CHECK, {"resource_group": "default"}).json()
    assert (body["project"], body["resource_group"]) == (cast.project.name, "default")
    assert body["remaining"] == {"cpu": "1", "mem": None}
    assert body["remaining_sessions"] == 2
    (limits,) = body["limits"]
    assert limits["slots"]["cpu"] == {"limit": "4", "used": "3", "remaining": "1"}
    assert limits["slots"]["mem"] == {"limit": None, "used": str(2**30), "remaining": None}
    assert body["room"]["free"] == {"cpu": "1", "mem": str(7 * 2**30)}
    (fit,) = body["presets"]
    assert (fit["name"], fit["fits"], fit["reason"]["code"]) == ("two", False, "slot-limit")
    assert "uses 3 of at most 4 CPU cores" in fit["reason"]["message"]
    unknown = Caller(cast.charlie).post(CHECK, {"project": cast.project.name})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "no-project")
