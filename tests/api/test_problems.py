"""Each operation says in the OpenAPI document that it answers errors as problems, and it does."""

from __future__ import annotations

import pytest

from backendai.domain.accounts.services import create_token
from backendai.domain.planning import turns
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.api.openapi import faults_of, made, operations_of
from tests.cast import Cast
from tests.factories import make_group, make_image, make_session

GONE = "00000000-0000-4000-8000-000000000000"


def test_each_operation_has_the_problem_as_its_default_answer() -> None:
    for method, path, operation in operations_of(made()):
        assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}, (method, path)
    content = made()["components"]["responses"]["Problem"]["content"]
    assert content == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


@pytest.mark.django_db
def test_real_refusals_comply_with_it(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    make_group()
    make_image()
    alice, mine = Caller(cast.alice), make_session(cast.alice)
    read_only = {"Authorization": f"Bearer {create_token(cast.alice, 'reads', scopes=['read'])[1]}"}
    refusals = [
        (400, alice.post(SESSIONS, LAUNCH | {"resources": {"cpu": True}, "environ": {"A": None}})),
        (400, alice.post(SESSIONS, "{")),
        (401, alice.get(SESSIONS, {"Authorization": "Bearer wrong"})),
        (403, alice.post(SESSIONS, LAUNCH, **read_only)),
        (403, alice.post("/api/v1/domains/", {"name": "mine"})),
        (404, alice.get(f"{SESSIONS}{GONE}/")),
        (405, alice.delete(SESSIONS)),
        (409, alice.post(SESSIONS, LAUNCH | {"name": mine.name})),
        (415, alice._client.post(SESSIONS, "a=1", content_type="application/x-www-form-urlencoded")),
    ]
    monkeypatch.setitem(turns._waiting, cast.alice.pk, 1)
    refusals.append((429, alice.get(f"{SESSIONS}{mine.pk}/explain/")))
    known = made()["components"]["schemas"]["Problem"]["properties"].keys()
    for status, answer in refusals:
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json"), answer.content
        body = answer.json()
        assert (body["status"], faults_of(body, "Problem")) == (status, [])
        assert body.keys() <= known
