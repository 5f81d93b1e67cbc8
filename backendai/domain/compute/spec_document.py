"""A launch request as a document: the versioned, validated form shared by REST, sessions and recent launches.

Version 1 has the names of REST. Older documents are upgraded when they are read, and never rewritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import nearest_to
from backendai.base.core.secret_names import looks_secret
from backendai.domain.compute.spec import LaunchFile, MountRequest, RoleSpec, SessionSpec

VERSION = 1
CODE, UNKNOWN = "invalid-document", "unknown-field"
_MOST_FAULTS = 20
_NAMES = {"session_type": "type"}  # field of a request → key in the document
KEYS = {_NAMES.get(field.name, field.name): field.name for field in fields(SessionSpec)}
_PARTS: dict[str, Any] = {"mounts": MountRequest, "files": LaunchFile, "roles": RoleSpec}
USUAL: dict[str, Any] = {key: getattr(SessionSpec(image=""), name) for key, name in KEYS.items()}
READER = TypeAdapter(SessionSpec)


class SpecFault(NamedTuple):
    """A wrong field of a launch request. ``values``: of an unknown field its name, and the closest known ones."""

    field: str
    text: str
    code: str
    values: Mapping[str, str] = {}


def document_of(spec: SessionSpec) -> dict[str, Any]:
    """Return the request as a document of the newest version, without default values."""
    values = {
        key: _plain(value) for key, name in KEYS.items() if not _is_usual(value := getattr(spec, name), USUAL[key])
    }
    return {"version": VERSION, **values}


def kept_document(spec: SessionSpec) -> dict[str, Any]:
    """Return the document for storage: variables that look like secrets have no values (None), and files have no
    texts."""
    kept = document_of(replace(spec, files=()))
    if spec.files:
        kept["files"] = [file.path for file in spec.files]
    for part in [kept, *kept.get("roles", {}).values()]:
        if "environ" in part:
            part["environ"] = without_secrets(part["environ"])
    return kept


def without_secrets(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables by name, with None for values that look like secrets."""
    return {name: None if looks_secret(name, value) else value for name, value in environ.items()}


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document in the newest version. Raises UserError for a document of a later release."""
    version = document.get("version", 0)
    if not isinstance(version, int) or not 0 <= version <= VERSION:
        raise UserError(
            "Version {given} of a launch request is not supported: use version {newest} at most.",
            given=str(version)[:20],
            newest=VERSION,
            field="version",
            code="unknown-version",
        )
    return dict(document) | {"version": VERSION}


def spec_of(document: Mapping[str, Any]) -> SessionSpec:
    """Return the request in a document. Raises UserError for a later version, an unknown key (with the closest known
    key) or an invalid value."""
    values = upgraded(document)
    del values["version"]
    try:
        return READER.validate_python(values)
    except ValidationError as error:
        first = faults_of(error)[0]
    if first.code == UNKNOWN:
        text = Message("A launch request has no key {key}: use {near}.", **first.values)
    else:
        text = Message("{key} cannot be read: {problem}.", key=first.field, problem=first.text.rstrip("."))
    raise UserError(text, field=first.field, code=first.code)


def faults_of(error: ValidationError) -> list[SpecFault]:
    """Return the errors in a request, or in a part of one, unknown keys first; at most 20."""
    faults = [_fault(one) for one in error.errors(include_url=False, include_input=False)]
    return sorted(faults, key=lambda fault: fault.code != UNKNOWN)[:_MOST_FAULTS]


def _fault(error: ErrorDetails) -> SpecFault:
    path = [str(part)[:64] for part in error["loc"]]
    if path[-1:] == ["[key]"]:  # a name that is wrong
        path = path[:-2]
    if error["type"] != "unexpected_keyword_argument":
        text = "Write keys with their values." if error["type"] == "dataclass_type" else error["msg"]
        return SpecFault(".".join(path), text, CODE)
    kind = next((_PARTS[name] for name in reversed(path[:-1]) if name in _PARTS), SessionSpec)
    known = sorted(KEYS if kind is SessionSpec else (one.name for one in fields(kind)))
    near = nearest_to(path[-1], known)
    text = f"Unknown field; use {near}." if near else f"Unknown field. Known fields: {', '.join(known)}."
    field = ".".join(name for name in path if not name.isdecimal())
    return SpecFault(field, text, UNKNOWN, {"key": repr(path[-1]), "near": near or ", ".join(known)})


def schema_of_requests(reference: str = "#/$defs/{model}") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schemas of all keys of a launch request, and of the parts that these use, by name."""
    schema = READER.json_schema(ref_template=reference)
    parts = {name: _without_annotations(part) for name, part in schema["$defs"].items()}
    return {key: _without_annotations(one) for key, one in schema["properties"].items()}, parts


def _without_annotations(schema: Any) -> Any:
    """Return the schema without titles, defaults and rules of names, which are Python's."""
    if isinstance(schema, list):
        return [_without_annotations(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_annotations(one)
        for key, one in schema.items()
        if key not in ("title", "default", "propertyNames")
    }


def digest_of(spec: SessionSpec) -> str:
    """Return a digest that is the same for equal requests."""
    return hashlib.sha256(json.dumps(document_of(spec), sort_keys=True).encode()).hexdigest()


def _is_usual(value: Any, usual: Any) -> bool:
    return value == usual or (value in (None, "", (), [], {}) and value is not False)


def _plain(value: Any) -> Any:
    """Return the value as ``json.dumps`` accepts it: durations as seconds, dates and UUIDs as text, dataclasses as
    dicts without their empty fields."""
    match value:
        case timedelta():
            return value.total_seconds()
        case datetime():
            return value.isoformat()
        case UUID():
            return str(value)
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(each) for key, each in asdict(value).items() if each not in (None, "", (), [], {})}
    return value
