"""Images over REST."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from backendai.domain.catalog.models import Image
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_image

pytestmark = pytest.mark.django_db
IMAGES = "/api/v1/images/"


def patch(caller: Caller, image: Image, **body: Any) -> Any:
    return caller._client.patch(f"{IMAGES}{image.pk}/", json.dumps(body), content_type="application/json")


def test_superadmins_change_what_an_image_is_for_others(cast: Cast) -> None:
    image, dana, alice = make_image(), Caller(cast.dana), Caller(cast.alice)
    answer = patch(dana, image, aliases=["py"], maximum={"cpu": 4}, title="Python", services="notes:http:8080")
    body = answer.json()
    assert (answer.status_code, body["aliases"], body["maximum"]) == (200, ["py"], {"cpu": "4"})
    assert alice.get(f"{IMAGES}{image.pk}/").json()["title"] == "Python"
    wrong = patch(dana, image, aliases=["other"], services="nonsense")
    assert (wrong.status_code, wrong.json()["field"]) == (400, "services")
    assert dana.get(f"{IMAGES}{image.pk}/").json()["aliases"] == ["py"], "nothing half done"
    assert patch(dana, image, domains=["nowhere"]).json()["code"] == "unknown-domain"
    assert patch(dana, image, domains=[cast.elsewhere.domain.name]).status_code == 200
    assert alice.get(f"{IMAGES}{image.pk}/").status_code == 404
    assert patch(dana, image, domains=[], is_enabled=False).json()["is_enabled"] is False
    assert alice.get(IMAGES).json()["results"] == []
    for refused in (patch(alice, image, title="Mine"), alice.delete(f"{IMAGES}{image.pk}/")):
        assert refused.status_code == 403
    assert dana.delete(f"{IMAGES}{image.pk}/").status_code == 204


def test_the_list_asks_the_same_of_the_database_however_long_it_is(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    alice = Caller(cast.alice)
    alice.get(IMAGES)
    for lap in range(2):
        for number in range(3):
            make_image(f"i-{lap}-{number}").aliases.create(name=f"a-{lap}-{number}")
        with django_assert_num_queries(3):  # who asks, images, other names
            assert len(alice.get(IMAGES).json()["results"]) == 3 * (lap + 1)
