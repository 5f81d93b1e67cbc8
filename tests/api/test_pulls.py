"""Putting images on agents over REST."""

from __future__ import annotations

import pytest

from backendai.domain.catalog.models import ImagePull
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image

pytestmark = pytest.mark.django_db


def test_superadmins_put_an_image_on_agents_and_groups_and_see_each_of_them(cast: Cast) -> None:
    dana, alice = Caller(cast.dana), Caller(cast.alice)
    image = make_image("torch")
    make_agent("one"), make_agent("two")
    path = f"/api/v1/images/{image.pk}/pull/"
    assert dana.get(path).json() == {"job": None, "agents": []}
    unknown = dana.post(path, {"agents": ["nobody"]})
    assert (unknown.status_code, unknown.json()["code"], unknown.json()["field"]) == (400, "unknown-agent", "agents")
    assert dana.post(path, {"resource_groups": ["nowhere"]}).json()["code"] == "unknown-resource-group"
    assert dana.post(path, {}).json()["code"] == "no-agent"
    started_at = dana.post(path, {"agents": ["one"], "resource_groups": ["default"]})
    assert (started_at.status_code, started_at.json()["kind"], started_at.json()["total"]) == (202, "image.pull", 2)
    assert dana.post(path, {"agents": ["one"]}).json()["code"] == "job-running"
    ImagePull.objects.filter(agent__name="two").update(status="PULLING", progress=0.25, message="1 of 4 MiB")
    shown = dana.get(path).json()
    assert shown["job"]["id"] == started_at.json()["id"]
    rows = [(row["agent"], row["status"], row["progress"], row["message"]) for row in shown["agents"]]
    assert rows == [("one", "WAITING", None, ""), ("two", "PULLING", 0.25, "1 of 4 MiB")]
    assert (alice.get(path).status_code, alice.post(path, {"agents": ["one"]}).status_code) == (404, 404)
