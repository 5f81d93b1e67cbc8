"""The recent history over REST."""

from __future__ import annotations

import pytest

from backendai.domain.compute.models import LaunchRecord
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image

pytestmark = pytest.mark.django_db
RECENT = "/api/v1/me/recent-launches/"


def test_one_lists_renames_pins_and_deletes_ones_own(cast: Cast) -> None:
    parameters = {"image": "python", "environ": {"TOKEN": None}}
    old = LaunchRecord.objects.create(owner=cast.alice, name="old", parameters=parameters)
    LaunchRecord.objects.create(owner=cast.alice, name="new", parameters={})
    alice, address = Caller(cast.alice), f"{RECENT}{old.pk}/"
    changed = alice.patch(address, {"name": "kept", "is_pinned": True}).json()
    assert (changed["name"], changed["is_pinned"]) == ("kept", True)
    assert changed["parameters"] == parameters | {"name": "kept", "version": 1}
    assert [row["name"] for row in alice.get(RECENT).json()["results"]] == ["kept", "new"]
    refused = alice.patch(address, {"is_pinned": False, "name": "x"}).json()
    assert (refused["code"], refused["field"]) == ("invalid-name", "name")
    old.refresh_from_db()
    assert old.is_pinned, "nothing of a request that is refused is done"
    assert Caller(cast.dana).patch(address, {"is_pinned": False}).status_code == 404
    assert alice.delete(address).status_code == 204
    assert alice.delete(address).status_code == 404


def test_launches_of_scripts_are_not_in_it(cast: Cast) -> None:
    make_image()
    make_agent()
    alice = Caller(cast.alice)
    assert alice.post(SESSIONS, LAUNCH).status_code == 201
    assert alice.get(RECENT).json()["results"] == []
