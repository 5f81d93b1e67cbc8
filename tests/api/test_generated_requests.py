"""Generated requests to every operation of the OpenAPI document: none fails, and each answer is documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from requests import Request

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.cluster.models import ResourceGroup
from tests.api.callers import Caller
from tests.api.openapi import made
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

schemathesis = pytest.importorskip("schemathesis", reason="not in this environment: bin/install requirements-dev.txt")
GenerationMode = schemathesis.GenerationMode
pytestmark = [pytest.mark.ci, pytest.mark.django_db, pytest.mark.timeout(600)]
_EXAMPLES = {GenerationMode.POSITIVE: 6, GenerationMode.NEGATIVE: 3}  # of each operation


@pytest.fixture
def ids(cast: Cast) -> Iterator[dict[str, Any]]:
    """What stands in addresses: rows that exist, by the name of the parameter."""
    agent = make_agent("node-1")
    image = make_image()
    session = make_running_session(cast.dana, agent)
    with serving(FakeFileServer()) as server:
        host = make_host(server)
        dana = Caller(cast.dana)
        folder = dana.post("/api/v1/folders/", {"name": "data"}).json()["id"]
        template = dana.post("/api/v1/templates/", {"name": "train", "document": {"image": "python"}}).json()["id"]
        yield {
            "session_id": session.pk, "agent_id": agent.pk, "image_id": image.pk, "folder_id": folder,
            "template_id": template, "group": ResourceGroup.objects.get().name, "storage_host_id": host.pk,
            "project_id": cast.project.pk, "domain_id": cast.project.domain_id, "user_id": cast.alice.pk,
            "id": ResourcePolicy.objects.create(name="students").pk,
        }  # fmt: skip


def test_each_operation_answers_as_documented(cast: Cast, ids: dict[str, Any]) -> None:
    dana, faults = Caller(cast.dana), {}
    for found in schemathesis.openapi.from_dict(made()).get_all_operations():
        for mode in _EXAMPLES:
            faults |= _tried(found.ok(), mode, ids, dana)
    assert faults == {}, "\n".join(f"{name}: {text}" for name, text in faults.items())


def _tried(operation: Any, mode: Any, ids: dict[str, Any], caller: Caller) -> dict[str, str]:
    """The first fault of each kind, with the request that shows it."""
    faults: dict[str, str] = {}

    @settings(
        max_examples=_EXAMPLES[mode], derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        for name in ids.keys() & case.path_parameters.keys():
            case.path_parameters[name] = str(ids[name])
        asked = Request(**case.as_transport_kwargs(base_url="http://testserver")).prepare()
        try:
            with transaction.atomic():
                _send(caller, asked)
                transaction.set_rollback(True)
        except Exception as error:
            faults.setdefault(f"{operation.label} {type(error).__name__}", f"{error} {asked.url} {asked.body!r:.300}")

    attempt()
    return faults


def _send(caller: Caller, asked: Any) -> None:
    kind = asked.headers.pop("Content-Type", "")
    for name in ("Content-Length", "Cookie", "Authorization"):
        asked.headers.pop(name, None)
    answer = caller._client.generic(asked.method, asked.path_url, asked.body or b"", kind, headers=dict(asked.headers))
    assert answer.status_code != 500, answer.content[:500]
