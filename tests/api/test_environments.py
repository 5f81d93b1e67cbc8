"""SSH keys, dotfiles and the bootstrap script over REST."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from backendai.domain.accounts.models import User
from tests.api.callers import Caller
from tests.cast import Cast
from tests.test_census import PUBLIC_KEY

pytestmark = pytest.mark.django_db
ME = "/api/v1/me"


def put(caller: Caller, path: str, body: dict[str, Any]) -> Any:
    client = Client(headers={"Authorization": f"Bearer {caller.token}"})
    return client.put(path, json.dumps(body), content_type="application/json")


def test_it_keeps_ones_own_keys_files_and_script(cast: Cast) -> None:
    alice = Caller(cast.alice)
    made = alice.post(f"{ME}/ssh-keys/", {"public_key": f"{PUBLIC_KEY} laptop"})
    assert (made.status_code, made.json()["name"]) == (201, "laptop")
    assert made.json()["fingerprint"].startswith("SHA256:")
    assert [row["id"] for row in alice.get(f"{ME}/ssh-keys/").json()["results"]] == [made.json()["id"]]
    assert alice.delete(f"{ME}/ssh-keys/{made.json()['id']}/").status_code == 204
    bad = alice.post(f"{ME}/ssh-keys/", {"public_key": "hello"}).json()
    assert (bad["code"], bad["field"]) == ("invalid-ssh-key", "public_key")
    content = "  alias ll='ls -l'\n"
    file = put(alice, f"{ME}/dotfiles/", {"path": ".bashrc", "content": content, "permission": "600"}).json()
    assert (file["content"], file["permission"]) == (content, "600"), "spaces and line ends stay"
    again = put(alice, f"{ME}/dotfiles/", {"path": ".bashrc", "content": "new"}).json()
    assert (again["id"], again["permission"]) == (file["id"], "644")
    clash = put(alice, f"{ME}/dotfiles/", {"path": ".bashrc/x"})
    assert (clash.status_code, clash.json()["code"]) == (409, "path-conflict")
    assert put(alice, f"{ME}/dotfiles/", {"path": ".ssh/authorized_keys"}).json()["code"] == "reserved-path"
    assert alice.delete(f"{ME}/dotfiles/{file['id']}/").status_code == 204
    assert alice.get(f"{ME}/dotfiles/").json()["results"] == []
    assert alice.get(f"{ME}/bootstrap-script/").json() == {"content": "", "updated_at": None}
    assert put(alice, f"{ME}/bootstrap-script/", {"content": "echo hi\n"}).json()["content"] == "echo hi\n"
    assert Caller(cast.bob).get(f"{ME}/bootstrap-script/").json()["content"] == ""


def test_files_of_projects_and_domains_are_there_for_their_administrators_alone(cast: Cast) -> None:
    places = [f"/api/v1/projects/{cast.project.pk}/dotfiles/", f"/api/v1/domains/{cast.project.domain_id}/dotfiles/"]
    for place in places:
        assert Caller(cast.alice).get(place).status_code == 404
        assert put(Caller(cast.alice), place, {"path": ".bashrc", "content": "evil"}).status_code == 404
    cast.bob.role = User.Role.ADMIN
    cast.bob.save()
    for place in places:
        file = put(Caller(cast.bob), place, {"path": ".bashrc", "content": "good"}).json()
        assert [row["id"] for row in Caller(cast.dana).get(place).json()["results"]] == [file["id"]]
        assert Caller(cast.bob).delete(f"{place}{file['id']}/").status_code == 204
    cast.charlie.role = User.Role.ADMIN
    cast.charlie.save()
    assert {put(Caller(cast.charlie), place, {"path": ".x"}).status_code for place in places} == {404}
