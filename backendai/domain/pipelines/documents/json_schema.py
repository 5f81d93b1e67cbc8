"""JSON Schemas of the documents that people write, for editors: names of keys, types, and what each means.

A schema is wider than the check of the portal, which knows images, limits and steps: it marks nothing that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from backendai.domain.compute.spec_document import schema_of_requests
from backendai.domain.pipelines.documents.document import ARRAY, ARRAY_KEYS, FINALLY, KIND, STEP_KEYS, TOP_KEYS
from backendai.domain.pipelines.retries import REASONS
from backendai.domain.templates.documents import KEYS as TEMPLATE_KEYS
from backendai.domain.templates.documents import SESSION_KEYS
from backendai.domain.templates.models import SESSION
from backendai.domain.templates.parameters import TYPES
from backendai.scheduler.runs.snapshot import OnFailure, When

Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_GAP = {"type": "string", "pattern": r"\$\{\{"}
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_ANY_MAP: Schema = {"type": "object"}
_VALUE: Schema = {"type": ["string", "number", "boolean"]}
_LIST: Schema = {"type": "array", "items": {"anyOf": [_VALUE, _ANY_MAP]}}
_DURATION: Schema = {"type": ["integer", "string"], "description": "Seconds, or 30s, 5m, 2h, 1d."}


@cache
def run_schema() -> Schema:
    """Return the schema of the document of a pipeline or an array."""
    requests, parts = schema_of_requests()
    requests = _requested(requests)
    step = _closed(_fan() | requests | _step(), STEP_KEYS)
    pipeline = _closed(_top(requests), TOP_KEYS) | {"required": ["steps"]}
    array = _closed(_fan() | requests | _head(ARRAY), ARRAY_KEYS)
    return {
        "$schema": _DIALECT,
        "title": "Run of Backend.AI",
        "if": {"required": ["steps"]},
        "then": pipeline,
        "else": array,
        "$defs": parts | {"step": step, "last": _closed(_fan() | requests | _step(), STEP_KEYS - {"after"})},
    }


@cache
def template_schema() -> Schema:
    """Return the schema of the document of a template."""
    requests, parts = schema_of_requests()
    own = {"params": _parameters(), "locked": {"type": "array", "items": _TEXT, "description": "Keys nobody changes."}}
    known = _requested(requests) | own | _head(SESSION)
    return {"$schema": _DIALECT, "title": "Template of Backend.AI", **_closed(known, TEMPLATE_KEYS), "$defs": parts}


def _top(requests: Schema) -> Schema:
    folder = {"folder": _TEXT | {"description": "A folder that you may edit."}, "path": _TEXT}
    return _head(KIND) | {
        "params": _parameters(),
        "workspace": _closed(folder, folder) | {"description": "Where $STEP_OUT and $IN_… lie."},
        "defaults": _closed(requests, SESSION_KEYS - {"name", "type"}) | {"description": "For each step."},
        "steps": {"type": "object", "additionalProperties": {"$ref": "#/$defs/step"}, "minProperties": 1},
        FINALLY: {"$ref": "#/$defs/last", "description": "Runs when all steps are over."},
        "on_failure": _one_of(OnFailure, "What the failure of an element does to the rest."),
        "at_once": _NUMBER | {"description": "Most sessions at once; 0: no limit."},
    }


def _head(kind: str) -> Schema:
    return {"kind": {"const": kind}, "version": {"const": 1}, "name": _TEXT, "on_failure": _one_of(OnFailure, "")}


def _step() -> Schema:
    edges = {"type": "object", "additionalProperties": _one_of(When, "What is waited for.")}
    return {
        "after": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, edges], "description": "Steps that come before."},
        "template": _TEXT | {"description": "scope/name or scope/name@version."},
        "parameters": _ANY_MAP,
    }


def _fan() -> Schema:
    retry = {
        "times": _NUMBER,
        "reasons": {"type": "array", "items": {"anyOf": [{"enum": list(REASONS)}, {"pattern": "^exit:"}]}},
        "wait": _DURATION,
        "factor": {"type": "number", "minimum": 1},
        "most": _DURATION,
        "more": {"type": "object", "additionalProperties": {"type": "number", "minimum": 1}},
    }
    return {
        "array": {
            "anyOf": [_NUMBER, {"type": "array", "items": _NUMBER}],
            "description": "Elements, or their numbers.",
        },
        "matrix": {"type": "object", "additionalProperties": _LIST},
        "foreach": _LIST,
        "at_once": _NUMBER,
        "probe": _NUMBER | {"description": "So many elements are tried before the others."},
        "give_up_after": {"type": ["integer", "string"], "description": "Failures, or a share such as 5%."},
        "retry": {"anyOf": [_NUMBER, _closed(retry, retry)]},
    }


def _parameters() -> Schema:
    texts = {name: _TEXT for name in ("title", "help", "format")}
    numbers = {name: {"type": ["number", "string"]} for name in ("min", "max", "step")}
    own = {
        "type": {"enum": list(TYPES)},
        "default": {},
        "choices": {"type": "array"},
        "show_if": _ANY_MAP,
        "advanced": {"type": "boolean"},
    }
    one = _closed(texts | numbers | own, {*texts, *numbers, *own})
    return {"type": "object", "additionalProperties": one}


def _closed(known: Schema, keys: Iterable[str]) -> Schema:
    """Return an object of these keys alone."""
    return {"type": "object", "properties": {key: known.get(key, {}) for key in sorted(keys)}} | {
        "additionalProperties": False
    }


def _requested(requests: Schema) -> Schema:
    """Return the keys of a launch request, each also as a gap, or as null, which takes away what lies below."""
    return {key: _or_gap(one) for key, one in (requests | {"batch_timeout": _DURATION}).items()}


def _or_gap(one: Schema) -> Schema:
    return (
        one | {"type": ["string", "null"]} if one.get("type") == "string" else {"anyOf": [one, _GAP, {"type": "null"}]}
    )


def _one_of(values: Iterable[str], description: str) -> Schema:
    return {"enum": [str(one) for one in values]} | ({"description": description} if description else {})
