"""A launch request as a document: the versioned, validated form shared by REST, sessions and recent launches.

Version 1 has the names of REST. Older documents are upgraded when they are read, and never rewritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from backendai.base.core.durations import seconds_in
from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import nearest_to
from backendai.base.core.secret_names import looks_secret
from backendai.domain.compute.spec import LaunchFile, MountRequest, RoleSpec, SessionSpec

VERSION = 1
_NAMES = {"session_type": "type"}  # field of a request → key in the document
_KEYS = {_NAMES.get(field.name, field.name): field.name for field in fields(SessionSpec)}
USUAL: dict[str, Any] = {key: getattr(SessionSpec(image=""), name) for key, name in _KEYS.items()}
_READER = TypeAdapter(SessionSpec)


def document_of(spec: SessionSpec) -> dict[str, Any]:
    """Return the request as a document of the newest version, without default values."""
    values = {
        key: _plain(value) for key, name in _KEYS.items() if not _is_usual(value := getattr(spec, name), USUAL[key])
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
    found = dict(document) | {"version": VERSION}
    if version == 0:  # recent launches from before documents had versions
        for old, new in _NAMES.items():
            if old in found:
                found[new] = found.pop(old)
    return found


def spec_of(document: Mapping[str, Any]) -> SessionSpec:
    """Return the request in a document. Raises UserError for a later version, an unknown key (with the closest known
    key) or an invalid value."""
    values = upgraded(document)
    del values["version"]
    _check_all_keys(values)
    if (seconds := seconds_in(values.get("batch_timeout"))) is not None:
        values["batch_timeout"] = seconds
    try:
        return _READER.validate_python({_KEYS[key]: value for key, value in values.items()})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        where = ".".join(str(_NAMES.get(str(part), part)) for part in wrong["loc"])
        text = Message("{key} cannot be read: {problem}.", key=where, problem=wrong["msg"])
        raise UserError(text, field=where, code="invalid-document") from None


def schema_of_requests() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schemas of all keys of a launch request, and of the parts that these use."""
    schemas = _READER.json_schema()
    keys = {key: _bare(schemas["properties"][name]) for key, name in _KEYS.items()}
    parts = {name: _bare(part) | {"additionalProperties": False} for name, part in schemas["$defs"].items()}
    return keys, parts


def _bare(schema: Any) -> Any:
    """Return the schema without titles, defaults and descriptions, which come from Python."""
    if not isinstance(schema, dict):
        return schema
    values = {key: value for key, value in schema.items() if key not in ("title", "default", "description")}
    return (
        values | {"properties": {key: _bare(one) for key, one in values.get("properties", {}).items()}}
        if values.get("properties")
        else values
    )


def digest_of(spec: SessionSpec) -> str:
    """Return a digest that is the same for equal requests."""
    return hashlib.sha256(json.dumps(document_of(spec), sort_keys=True).encode()).hexdigest()


def _check_all_keys(values: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown key, also in nested parts. Parts of a wrong type are left to the reader, which
    rejects them."""
    _check_keys(values, _KEYS, "")
    mounts, roles, files = values.get("mounts"), values.get("roles"), values.get("files")
    for part, kind, found in (("mounts", MountRequest, mounts), ("files", LaunchFile, files)):
        for one in found if isinstance(found, list | tuple) else ():
            _check_keys(one, _names_of(kind), f"{part}.")
    for name, role in roles.items() if isinstance(roles, Mapping) else ():
        _check_keys(role, _names_of(RoleSpec), f"roles.{name}.")


def _check_keys(values: Any, known: Collection[str], where: str) -> None:
    if not isinstance(values, Mapping):
        raise UserError("Write keys with their values.", field=where.rstrip("."), code="invalid-document")
    for key in values:
        if key not in known:
            near = nearest_to(str(key), known) or ", ".join(sorted(known))
            text = Message("A launch request has no key {key}: use {near}.", key=repr(str(key)[:64]), near=near)
            raise UserError(text, field=f"{where}{str(key)[:64]}", code="unknown-field")


def _names_of(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


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
