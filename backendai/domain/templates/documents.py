"""The document of a template: a launch request with gaps, the parameters that fill them, and what is locked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_session_name, check_variable_name
from backendai.base.core.nearest import nearest_to
from backendai.base.core.secret_names import looks_secret
from backendai.base.core.slots import Slots, parse_size
from backendai.base.core.written_documents import check_extent
from backendai.domain.compute.services.requests.roles import with_size
from backendai.domain.compute.spec import RoleSpec, SessionSpec
from backendai.domain.compute.spec_document import USUAL, VERSION, spec_of, upgraded
from backendai.domain.templates.parameters import Parameter, parameters_of
from backendai.domain.templates.rendering import check_gaps, filled_in, merged

# What belongs to one launch and one person alone.
NEVER = frozenset(
    {"owner", "launch_id", "access_key", "starts_at", "depends_on", "depends_when", "template", "parameters"}
)
SESSION_KEYS = frozenset(USUAL) - NEVER
KEYS = SESSION_KEYS | {"version", "kind", "params", "locked"}
_MOST_LOCKED = 64
_SAMPLES: Mapping[str, Any] = {"boolean": True, "duration": 3600, "folder": "data", "image": "python", "size": "1g"}
_TEXTS = {"url": "https://example.com", "path": "/data"}


@dataclass(frozen=True, slots=True)
class TemplateDocument:
    """``session``: the launch request, with gaps."""

    session: dict[str, Any]
    parameters: dict[str, Parameter]
    locked: list[str]


def template_document(said: Mapping[str, Any]) -> TemplateDocument:
    """Return the document in its parts. Raises a UserError that names the key for what could never be launched."""
    check_extent(said)
    _check_keys(said)
    upgraded({"version": said.get("version", VERSION)})
    parameters = parameters_of(said.get("params"))
    session = {key: value for key, value in said.items() if key in SESSION_KEYS}
    locked = _locked(said.get("locked"))
    check_gaps(session, parameters)
    check_secrets(session)
    found = TemplateDocument(session, parameters, locked)
    _check_sample(found)
    return found


def parts_of(document: Mapping[str, Any]) -> TemplateDocument:
    """Return the parts of a document that was checked when it was published."""
    session = {key: value for key, value in document.items() if key in SESSION_KEYS}
    return TemplateDocument(session, parameters_of(document.get("params")), list(document.get("locked") or ()))


def digest_of(document: Mapping[str, Any]) -> str:
    """Return what two documents that say the same have in common."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _check_keys(said: Mapping[str, Any]) -> None:
    for key in said:
        if key in NEVER:
            text = Message("A template does not set {key}: it belongs to a single launch.", key=repr(key))
            raise UserError(text, field=key, code="unknown-field")
        if key not in KEYS:
            near = nearest_to(str(key), KEYS) or ", ".join(sorted(KEYS))
            text = Message("A template has no key {key}: use {near}.", key=repr(str(key)[:64]), near=near)
            raise UserError(text, field=str(key)[:64], code="unknown-field")


def _locked(said: object) -> list[str]:
    if said is None:
        return []
    if not isinstance(said, list) or len(said) > _MOST_LOCKED or any(not isinstance(one, str) for one in said):
        text = Message("Write a list of keys, {most} at most.", most=_MOST_LOCKED)
        raise UserError(text, field="locked", code="invalid-document")
    for number, path in enumerate(said):
        first = path.partition(".")[0]
        if first not in SESSION_KEYS:
            near = nearest_to(first, SESSION_KEYS) or ", ".join(sorted(SESSION_KEYS))
            text = Message("Unknown key {key} in locked: use {near}.", key=repr(first[:64]), near=near)
            raise UserError(text, field=f"locked.{number}", code="unknown-field")
    return list(said)


def check_secrets(session: Mapping[str, Any], prefix: str = "") -> None:
    """Refuse values of variables that look like secrets; ``prefix``: of the request's keys in the document."""
    for where, environ in _environs(session, prefix):
        for name, value in environ.items():
            if isinstance(value, str) and value and "${{" not in value and looks_secret(str(name), value):
                text = Message("{name} looks like a secret: make it a parameter of type secret.", name=str(name)[:64])
                raise UserError(text, field=f"{where}.{name}", code="secret-in-template")


def _environs(session: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    roles = session.get("roles")
    parts = [(prefix, session), *((f"{prefix}roles.{name}.", one) for name, one in _items(roles))]
    for where, part in parts:
        if isinstance(part, Mapping) and isinstance(environ := part.get("environ"), Mapping):
            yield f"{where}environ", environ


def _check_sample(document: TemplateDocument) -> None:
    """Refuse what no launch could be made of, whatever the parameters are."""
    values = samples_of(document.parameters)
    sample = merged(filled_in(document.session, values, "", document.parameters)).document
    spec = spec_of({"version": VERSION, "image": "python", **sample})
    _check_parts(spec)
    if document.session.get("name") and "${{" not in spec.name and "${{" not in str(document.session["name"]):
        check_session_name(spec.name)
    with_size(spec)


def _check_parts(spec: SessionSpec) -> None:
    parts: list[tuple[str, SessionSpec | RoleSpec]] = [("", spec)]
    parts += [(f"roles.{name}.", role) for name, role in spec.roles.items()]
    for where, part in parts:
        Slots.parse(part.resources, field=f"{where}resources", typed=True)
        if part.shm:
            parse_size(part.shm, field=f"{where}shm", typed=True)
        for name in part.environ:
            check_variable_name(name, field=f"{where}environ.{name}")


def samples_of(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return an answer to each parameter, to check a document with."""
    return {name: _sample(one) for name, one in parameters.items()}


def _sample(one: Parameter) -> Any:
    if one.default is not None:
        return one.default
    if one.choices:
        return one.choices[0]
    if one.min is not None and one.type in ("integer", "number", "duration", "size"):
        return one.min if one.type == "number" else int(one.min)
    return _SAMPLES.get(one.type, 1 if one.type in ("integer", "number") else _TEXTS.get(one.format, "text"))


def _items(value: object) -> Iterator[tuple[str, Any]]:
    yield from value.items() if isinstance(value, Mapping) else ()
