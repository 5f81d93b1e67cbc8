"""The published schema of a launch request is the list of fields by which REST reads it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_values import MOST_ENTRIES
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_group, make_image


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("schema") / "schema.yml"
    call_command("spectacular", file=str(path))
    found: dict[str, Any] = yaml.safe_load(path.read_text())["components"]["schemas"]
    return found


def test_it_has_every_field_with_its_limit_and_help(parts: dict[str, Any]) -> None:
    known = parts["LaunchRequest"]["properties"]
    names = {field.name for field in fields(SessionSpec)} - {"session_type"} | {"type", "version", "retry"}
    assert known.keys() == names
    assert known["name"]["maxLength"] == 200 and known["name"]["description"].startswith("4 to 64 letters")
    assert known["starts_at"]["nullable"] is True and known["mounts"]["items"]["$ref"].endswith("/MountRequest")
    assert parts["MountRequest"]["required"] == ["folder"] and parts["RoleSpec"]["additionalProperties"] is False


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"environ": {f"A{number}": "" for number in range(MOST_ENTRIES + 1)}}, "environ"),
        ({"mounts": [{"folder": 1, "x": 1}] * (MOST_ENTRIES + 1)}, "mounts"),
        ({"depends_on": [{}] * (MOST_ENTRIES + 1)}, "depends_on"),
        ({"preopen_ports": ["x"] * (MOST_ENTRIES + 1)}, "preopen_ports"),
        ({"parameters": {str(number): 1 for number in range(MOST_ENTRIES + 1)}}, "parameters"),
        ({"environ": {"A": "\0"}}, "environ.A"),
        ({"startup_command": "a" * (2**16 + 1)}, "startup_command"),
        ({"roles": {"main": {"mounts": [{"folder": "a", "targte": "/x"}]}}}, "roles.main.mounts.targte"),
        ({"type": "system"}, "type"),
    ],
)
def test_what_is_wrong_is_named_and_bounded(cast: Cast, more: dict[str, Any], field: str) -> None:
    make_group()
    make_image()
    answer = Caller(cast.alice).post(SESSIONS, LAUNCH | more)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (400, "invalid-request", field)
    assert len(answer.content) < 2000
