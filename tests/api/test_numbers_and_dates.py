"""Numbers and dates at the ends of what can be written: each is refused at its door, with its field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.domain.compute.spec_document import VERSION, schema_of_requests, spec_of
from backendai.portal.api.frame.parsing import BoundedSerializer, DayField, MomentField
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session

DATES = (
    "0001-01-01T00:00:00+14:00",
    "0001-01-01",
    "9999-12-31T23:59:59-12:00",
    "9999-12-31",
    "202706-06-01T10:00",
    "1e400",
)
NUMBERS = (
    *("-1", "NaN", "Infinity", "-Infinity", "1e400", "9" * 400, "366 00:00:00", "9999999999 00:00:00"),
    *(2**63, -(2**63), 10**400, 1e308),
)
DAYS = serializers.DateTimeField | serializers.DateField


def kinds_of(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from kinds_of(one)


def fields_of(field: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, field
    if isinstance(field, serializers.Serializer):
        for inner, one in field.fields.items():
            yield from fields_of(one, f"{name}.{inner}")
    elif (child := getattr(field, "child", None)) is not None:
        yield from fields_of(child, f"{name}[]")


@cache
def of_requests() -> dict[str, Any]:
    """Return every number and date that a request can name."""
    assert get_resolver().url_patterns  # loads the views
    kinds = [one for one in kinds_of(serializers.Serializer) if one.__module__.startswith("backendai.portal.api")]
    asked = [one for one in kinds if issubclass(one, BoundedSerializer) or one.__name__.endswith("Query")]
    timed = DAYS | serializers.DurationField
    found = {name: field for one in asked for name, field in fields_of(one(), one.__name__) if not field.read_only}
    return {
        name: field
        for name, field in found.items()
        if isinstance(field, serializers.IntegerField | serializers.FloatField | timed)
    }


def test_every_number_and_date_of_a_request_has_its_ends() -> None:
    found = of_requests()
    assert len(found) > 60 and "EndTimeRequest.ends_at" in found and "RunQuery.wait" in found
    dates = {
        name: one for name, one in found.items() if isinstance(one, serializers.DateTimeField | serializers.DateField)
    }
    assert [name for name, one in dates.items() if not isinstance(one, MomentField | DayField)] == []
    assert [name for name in found.keys() - dates if found[name].max_value is None] == []


@pytest.mark.parametrize("name", of_requests())
def test_it_takes_none_of_them(name: str) -> None:
    field = of_requests()[name]
    for value in DATES if isinstance(field, DAYS) else NUMBERS:
        try:
            taken = field.run_validation(value)
        except ValidationError:
            continue
        seconds = taken.total_seconds() if isinstance(taken, timedelta) else taken
        assert not isinstance(field, DAYS) and abs(seconds) < 10**16, f"{name} takes {value}"


def test_every_number_and_date_of_a_launch_has_its_ends() -> None:
    keys, parts = schema_of_requests()
    numbers = re.findall(r'[^{]*"type": "integer"[^}]*', json.dumps([keys, parts]))
    assert len(numbers) >= 5 and [one for one in numbers if "maximum" not in one or "minimum" not in one] == []
    for name, values in {"starts_at": DATES, "batch_timeout": NUMBERS, "priority": NUMBERS}.items():
        for value in values:
            try:
                read = getattr(spec_of({"version": VERSION, "image": "python", name: value}), name)
            except UserError as error:
                assert error.field == name
                continue
            seconds = read.total_seconds() if isinstance(read, timedelta) else read
            assert name != "starts_at" and abs(seconds) < 10**16, f"{name} takes {value}"


@pytest.mark.django_db
def test_no_address_fails_on_them(cast: Cast) -> None:
    make_image()
    session = make_running_session(cast.alice, make_agent())
    dana, base = Caller(cast.dana), f"{SESSIONS}{session.pk}/"
    agent = session.kernels.get().agent_id
    bodies: list[tuple[str, str, dict[str, Any], str]] = [
        ("post", SESSIONS, LAUNCH | {"type": "batch", "startup_command": "true"}, "starts_at"),
        ("post", SESSIONS, LAUNCH | {"type": "batch", "startup_command": "true"}, "batch_timeout"),
        ("post", SESSIONS, LAUNCH, "cluster_size"),
        ("post", SESSIONS, LAUNCH, "priority"),
        ("post", "/api/v1/session-preview/", LAUNCH, "starts_at"),
        ("post", f"{base}end-time/", {}, "ends_at"),
        ("post", f"{base}priority/", {}, "priority"),
        ("post", "/api/v1/tokens/", {"name": "a"}, "expires_at"),
        ("post", "/api/v1/join-tokens/", {"resource_group": "default"}, "expires_at"),
        ("post", f"/api/v1/agents/{agent}/drain/", {}, "ends_at"),
        ("patch", f"/api/v1/agents/{agent}/", {}, "max_kernels"),
        ("post", "/api/v1/policies/", {"name": "p"}, "max_session_lifetime"),
        ("post", "/api/v1/idle-checkers/", {"name": "i", "kind": "session-lifetime"}, "limit"),
    ]
    answers = {
        (path, field, str(value)[:20]): getattr(dana, method)(path, body | {field: value})
        for method, path, body, field in bodies
        for value in (*DATES, *NUMBERS)
    }
    for query in ("until", "seconds"):
        answers |= {
            ("usage", query, str(one)[:20]): dana.get(f"{base}usage/", **{query: one}) for one in (*DATES, *NUMBERS)
        }
    for query in ("first", "last"):
        answers |= {("statistics", query, one): dana.get("/api/v1/statistics/", **{query: one}) for one in DATES}
    assert {key: answer.content for key, answer in answers.items() if answer.status_code >= 500} == {}
    assert sum(answer.status_code == 400 for answer in answers.values()) > 0.8 * len(answers)


@pytest.mark.django_db
def test_json_is_read_strictly_everywhere(cast: Cast) -> None:
    make_group()
    deep = "[" * 10**5 + "]" * 10**5
    answer = Caller(cast.alice).post(f"/api/v1/folders/{cast.project.pk}/uses/{cast.project.pk}/cut-off/", deep)
    assert answer.status_code in (400, 404), answer.content
    answer = Client().post("/api/v1/tokens/", deep, content_type="application/json")
    assert answer.status_code == 401, json.loads(answer.content)
