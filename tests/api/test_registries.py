"""Registries over REST."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backendai.domain.catalog.models import Registry
from tests.api.callers import Caller
from tests.cast import Cast

pytestmark = pytest.mark.django_db
REGISTRIES = "/api/v1/registries/"


def test_superadmins_keep_registries_whose_passwords_are_never_shown(cast: Cast) -> None:
    dana, alice = Caller(cast.dana), Caller(cast.alice)
    body: dict[str, Any] = {"name": "lab", "url": "https://cr.example.org", "username": "robot", "password": "s3cret"}
    answer = dana.post(REGISTRIES, body | {"is_global": False, "domains": ["elsewhere"]})
    assert (answer.status_code, answer.json()["has_password"], answer.json()["domains"]) == (201, True, ["elsewhere"])
    assert "s3cret" not in answer.content.decode()
    assert dana.post(REGISTRIES, body | {"name": "b", "url": "https://a/b"}).json()["field"] == "url"
    assert dana.post(REGISTRIES, body).json()["field"] == "name"
    path = f"{REGISTRIES}{answer.json()['id']}/"
    changed = dana._client.patch(path, json.dumps({"is_global": True}), content_type="application/json").json()
    assert (changed["is_global"], Registry.objects.get().password) == (True, "s3cret")
    pushing = json.dumps({"push_username": "writer", "push_password": "may write"})
    changed = dana._client.patch(path, pushing, content_type="application/json")
    assert (changed.json()["has_push_password"], Registry.objects.get().push_password) == (True, "may write")
    assert "may write" not in changed.content.decode()
    scanned = dana.post(f"{path}scan/")
    assert (scanned.status_code, scanned.json()["kind"]) == (202, "registry.scan")
    assert dana.post(f"{path}scan/").json()["code"] == "job-running"
    assert alice.get(REGISTRIES).json()["results"] == []
    for refused in (alice.get(path), alice.post(REGISTRIES, body), alice.post(f"{path}scan/"), alice.delete(path)):
        assert refused.status_code == 404
    assert dana.delete(path).status_code == 204
