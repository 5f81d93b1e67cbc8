"""The JSON Schemas of documents: they take what the portal takes, and know every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.test import Client
from jsonschema import Draft202012Validator

from backendai.domain.pipelines.documents.document import run_document
from backendai.domain.pipelines.documents.json_schema import run_schema, template_schema
from backendai.domain.templates.documents import template_document
from tests.cast import Cast
from tests.pipelines.world import ARRAY

GUIDE = Path(settings.BASE_DIR, "docs", "user-guide.md")
REST = Path(settings.BASE_DIR, "docs", "rest.md")


def examples(path: Path, word: str) -> list[dict[str, Any]]:
    found = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)]
    return [one for one in found if isinstance(one, dict) and word in one]


def faults(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


def test_the_schemas_are_schemas() -> None:
    Draft202012Validator.check_schema(run_schema())
    Draft202012Validator.check_schema(template_schema())


def test_documents_of_the_guide_are_taken_by_schema_and_portal() -> None:
    (pipeline,) = examples(GUIDE, "steps")
    run_document(pipeline, {"data": "data"})
    assert faults(run_schema(), pipeline) == []
    (template,) = examples(REST, "params")
    template_document(template)
    assert faults(template_schema(), template) == []


@pytest.mark.parametrize(
    "document",
    [
        {**ARRAY, "array": 100, "retry": 3},
        {**ARRAY, "array": [1, 5], "batch_timeout": 3600, "give_up_after": "5%"},
        {**ARRAY, "array": 2, "batch_timeout": "90m", "retry": {"times": 2, "wait": "30s"}},
        {**ARRAY, "foreach": [{"lr": 0.1}, "b"], "roles": {"worker": {"after": ["main"], "ready": {"tcp": 80}}}},
        {"steps": {"a": {**ARRAY, "after": []}, "b": {**ARRAY, "after": {"a": "each"}, "shm": None}}},
    ],
)
def test_what_the_portal_takes_the_schema_takes(document: dict[str, Any]) -> None:
    run_document(document, {})
    assert faults(run_schema(), document) == []


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"steps": {"a": {**ARRAY, "startup_comand": "x"}}}, "startup_comand"),
        ({**ARRAY, "array": 1, "on_failure": "stopp"}, "stopp"),
        ({"steps": {"a": {**ARRAY, "after": {"b": "allways"}}}}, "allways"),
        ({"steps": {}}, "non-empty"),
        ({**ARRAY, "array": 1, "roles": {"w": {"imge": "x"}}}, "imge"),
    ],
)
def test_a_slip_is_marked(document: dict[str, Any], word: str) -> None:
    assert any(word in fault for fault in faults(run_schema(), document)), faults(run_schema(), document)


@pytest.mark.django_db
def test_they_are_served(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.alice)
    assert client.get("/api/v1/run-schema/").json() == run_schema()
    assert client.get("/api/v1/template-schema/").json() == template_schema()
