"""The OpenAPI document, and checks that answers comply with it."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import yaml
from django.conf import settings
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from jsonschema import Draft202012Validator

METHODS = ("get", "post", "put", "patch", "delete")
PROBLEM = "application/problem+json"


@cache
def generator() -> Any:
    """The generator after it has made the document."""
    maker = SchemaGenerator()
    maker.document = json.loads(OpenApiJsonRenderer().render(maker.get_schema(public=True)))
    return maker


def made() -> dict[str, Any]:
    """The document as the code makes it. Do not change it."""
    document: dict[str, Any] = generator().document
    return document


def operations_of(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation."""
    return [
        (method, path, item[method]) for path, item in document["paths"].items() for method in METHODS if method in item
    ]


def faults_of(value: Any, name: str) -> list[str]:
    """What of the value does not comply with the component, as the code makes it."""
    return _faults(value, Draft202012Validator(_whole({"$ref": f"#/components/schemas/{name}"}, made())))


def check_answer(answer: Any) -> None:
    """Fail unless the committed document has this answer to the request that the test's client sent."""
    match, method = answer.resolver_match, answer.request["REQUEST_METHOD"].lower()
    path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", match.route) if match else ""
    if (operation := _committed()["paths"].get(path, {}).get(method)) is None or answer.streaming:
        return
    status, kind = str(answer.status_code), answer.get("Content-Type", "").partition(";")[0]
    if answer.status_code >= 400:
        status = "default"
    assert status in operation["responses"], f"{operation['operationId']} does not document {answer.status_code}"
    schema = _schema_of(path, method, status, kind)
    if schema is not None and kind.endswith("json"):
        assert (faults := _faults(answer.json(), schema)) == [], f"{operation['operationId']}: {faults[:5]}"


@cache
def _committed() -> dict[str, Any]:
    text = (settings.BASE_DIR / "docs" / "openapi.yaml").read_text()
    document: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return document


@cache
def _schema_of(path: str, method: str, status: str, kind: str) -> Draft202012Validator | None:
    document = _committed()
    described = document["paths"][path][method]["responses"][status]
    if reference := described.get("$ref"):
        described = document["components"]["responses"][reference.rpartition("/")[2]]
    if not (content := described.get("content")):
        return None
    assert kind in content, f"{method} {path} documents {sorted(content)} and answers {kind}"
    return Draft202012Validator(_whole(content[kind]["schema"], document))


def _faults(value: Any, schema: Draft202012Validator) -> list[str]:
    return [f"{'.'.join(map(str, fault.path))}: {fault.message[:200]}" for fault in schema.iter_errors(value)]


def _whole(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    return _as_json_schema({**schema, "components": document["components"]})


def _as_json_schema(part: Any) -> Any:
    """The part with null as a type, which OpenAPI 3.0 does not have."""
    if isinstance(part, list):
        return [_as_json_schema(one) for one in part]
    if not isinstance(part, dict):
        return part
    rest = {key: _as_json_schema(one) for key, one in part.items() if key != "nullable"}
    return {"anyOf": [rest, {"type": "null"}]} if part.get("nullable") is True else rest
