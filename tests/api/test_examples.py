"""Bodies of requests and the main answers have an example in the OpenAPI document; the platform takes the former."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backendai.domain.compute.spec_document import READER
from backendai.portal.api.frame.example_answers import ANSWERS
from backendai.portal.api.frame.examples import REQUESTS
from backendai.portal.api.sessions.launch_request import LaunchRequest
from tests.api.callers import Caller
from tests.api.openapi import faults_of, generator, made, operations_of
from tests.cast import Cast
from tests.factories import make_agent, make_image
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = pytest.mark.django_db  # some bodies look up rows


def _bodies() -> Iterator[str]:
    for _, _, operation in operations_of(made()):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if reference := content["schema"].get("$ref"):
                yield reference.rpartition("/")[2]


def test_each_body_has_one() -> None:
    assert set(_bodies()) == set(REQUESTS)
    schemas = made()["components"]["schemas"]
    assert all(schemas[name]["example"] == example for name, example in REQUESTS.items())


@pytest.mark.parametrize("name", REQUESTS)
def test_it_complies_with_the_schema_and_is_accepted(name: str) -> None:
    example = REQUESTS[name]
    assert faults_of(example, name) == []
    part = next(part for part in generator().registry._components.values() if part.name == name)
    kind = part.object if isinstance(part.object, type) else type(part.object)
    if kind is LaunchRequest:
        READER.validate_python(example)
        return
    body = kind(data=example, partial=name.startswith("Patched"))
    assert body.is_valid(), body.errors


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_complies_with_its_schema(name: str) -> None:
    assert faults_of(ANSWERS[name], name) == []
    assert ANSWERS[name].keys() <= made()["components"]["schemas"][name]["properties"].keys()


def test_the_main_ones_are_carried_out(cast: Cast) -> None:
    make_agent("node-1")
    make_image()
    make_image("serve")
    with serving(FakeFileServer()) as server:
        make_host(server)
        alice = Caller(cast.alice)
        for path, name in (
            ("folders/", "FolderRequest"),
            ("sessions/", "LaunchRequest"),
            ("runs/", "RunRequest"),
            ("templates/", "TemplateRequest"),
            ("endpoints/", "EndpointRequest"),
            ("tokens/", "TokenRequest"),
            ("me/ssh-keys/", "SshKeyRequest"),
        ):
            answer = alice.post(f"/api/v1/{path}", REQUESTS[name])
            assert answer.status_code == 201, (name, answer.content)
