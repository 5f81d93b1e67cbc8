"""A launch request as the document of a new template: what belongs to one launch goes, secrets become parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backendai.base.core.secret_names import looks_secret
from backendai.base.core.slots import written_amount
from backendai.base.core.written_documents import written
from backendai.domain.templates.documents import SESSION_KEYS

_LEFT_OUT = frozenset({"name", "project", "cluster_size"})
_OWN = re.compile(r"PARAM_[A-Z][A-Z0-9_]{0,31}", re.ASCII)
_NAME = re.compile(r"[^a-z0-9]+")


def document_to_save(said: Mapping[str, Any]) -> str:
    """Return as YAML the document of a template that launches the same. Values of secrets are not in it; of files only
    those whose texts are known."""
    parameters: dict[str, Any] = {}
    kept = {key: value for key, value in said.items() if key in SESSION_KEYS - _LEFT_OUT}
    kept["files"] = [one for one in kept.get("files", ()) if isinstance(one, Mapping)]
    if not kept["files"]:
        del kept["files"]
    if "roles" not in said and said.get("cluster_size", 1) != 1:
        kept["cluster_size"] = said["cluster_size"]
    kept = _without_secrets(kept, parameters)
    if roles := kept.get("roles"):
        kept["roles"] = {name: _without_secrets(role, parameters) for name, role in roles.items()}
    return written(({"params": parameters} if parameters else {}) | kept)


def _with_written_amounts(part: Mapping[str, Any]) -> dict[str, Any]:
    resources = part.get("resources")
    if not isinstance(resources, Mapping):
        return dict(part)
    return {**part, "resources": {name: written_amount(name, value) for name, value in resources.items()}}


def _without_secrets(part: Mapping[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the document with a gap for each secret, and add its parameter. Amounts become brief."""
    part = _with_written_amounts(part)
    if not part.get("environ"):
        return dict(part)
    environ = {}
    for name, value in part["environ"].items():
        if _OWN.fullmatch(name):  # the command reads it: it is asked for again
            secret = value is None or looks_secret(name, str(value))
            parameters[name[6:].lower()] = {"type": "secret"} if secret else {"type": "text", "default": value}
            continue
        if value is not None and not looks_secret(name, str(value)):
            environ[name] = value
            continue
        parameter = parameter_named_after(name)
        parameters[parameter] = {"type": "secret", "title": name}
        environ[name] = f"${{{{ params.{parameter} }}}}"
    return {**part, "environ": environ}


def parameter_named_after(variable: str) -> str:
    """Return the name of the parameter that stands for the secret in a variable."""
    name = _NAME.sub("_", variable.lower()).strip("_")[:25].lstrip("0123456789_") or "value"
    return name if looks_secret(f"PARAM_{name.upper()}") else f"{name}_secret"
