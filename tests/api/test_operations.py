"""Each operation of the OpenAPI document has an ID, a tag and a summary that generators of clients can use."""

from __future__ import annotations

import re
from typing import Any

import pytest

from backendai.portal.api.frame.operations import operation_id
from tests.api.callers import Caller
from tests.api.openapi import made, operations_of
from tests.cast import Cast
from tests.factories import make_group, make_image


@pytest.fixture(scope="module")
def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return operations_of(made())


def test_ids_are_unique_and_words_with_dots(operations: list[tuple[str, str, dict[str, Any]]]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(ids) == len(set(ids)) > 200
    assert [one for one in ids if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", one)] == []


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/sessions/", "sessions.list"),
        ("POST", "/api/v1/sessions/", "sessions.create"),
        ("GET", "/api/v1/sessions/{session_id}/", "sessions.get"),
        ("POST", "/api/v1/sessions/{session_id}/terminate/", "sessions.terminate"),
        ("POST", "/api/v1/sessions/terminate/", "sessions.terminate_many"),
        ("POST", "/api/v1/session-preview/", "sessions.preview"),
        ("PUT", "/api/v1/sessions/{session_id}/apps/{service}/public/", "sessions.apps.public.put"),
        ("DELETE", "/api/v1/folders/{folder_id}/trash/", "folders.trash.delete"),
        ("DELETE", "/api/v1/folders/{folder_id}/trash/{item}/", "folders.trash.items.delete"),
        ("PATCH", "/api/v1/site-settings/", "site_settings.update"),
    ],
)
def test_an_id_comes_from_address_and_method(method: str, path: str, expected: str) -> None:
    assert operation_id(path, method) == expected


def test_each_has_the_tag_of_its_resource_and_a_short_summary(
    operations: list[tuple[str, str, dict[str, Any]]],
) -> None:
    for method, path, operation in operations:
        assert operation["tags"] == [operation["operationId"].partition(".")[0].replace("_", "-")], (method, path)
        assert 5 < len(operation["summary"]) <= 120, (method, path, operation["summary"])
    assert len({operation["tags"][0] for _, _, operation in operations}) == 32


@pytest.mark.django_db
def test_a_change_of_what_others_changed_is_refused(cast: Cast) -> None:
    dana = Caller(cast.dana)
    policy = dana.post("/api/v1/policies/", {"name": "students"}).json()["id"]
    preset = dana.post("/api/v1/presets/", {"name": "small", "resources": {"cpu": 1}}).json()["id"]
    template = dana.post("/api/v1/templates/", {"name": "train", "document": {"image": "python"}}).json()["id"]
    checker = dana.post("/api/v1/idle-checkers/", {"name": "long", "kind": "session-lifetime", "limit": "1h"}).json()[
        "id"
    ]
    for path, change in (
        (f"policies/{policy}/", {"max_sessions": 4}),
        (f"presets/{preset}/", {"rank": 7}),
        (f"templates/{template}/", {"title": "Training"}),
        (f"idle-checkers/{checker}/", {"limit": "2h"}),
        (f"images/{make_image().pk}/", {"title": "Python 3"}),
        (f"resource-groups/{make_group().name}/settings/", {"max_retries": 5}),
    ):
        address = f"/api/v1/{path}"
        tag = dana.get(address)["ETag"]
        assert dana.get(address)["ETag"] == tag
        first = dana.patch(address, change, **{"If-Match": tag})
        assert (first.status_code, first["ETag"] == tag) == (200, False), (path, first.content)
        late = dana.patch(address, change, **{"If-Match": tag})
        assert (late.status_code, late.json()["code"]) == (412, "changed-meanwhile"), path
        assert dana.patch(address, change, **{"If-Match": first["ETag"]}).status_code == 200
        assert dana.patch(address, change).status_code == 200
