"""Launch requests of steps as they are stored: secrets and contents of files lie sealed beside them. No database."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.core.secret_names import looks_secret
from backendai.domain.accounts.secret_box import seal, unseal

SEALED, DIGEST = "sealed", "digest"
_FILES = "files."  # begins the places of files; those of variables begin with environ or roles
Secrets = dict[str, dict[str, str]]  # by the place of a variable in the request


def sealed_request(request: Mapping[str, Any]) -> tuple[dict[str, Any], Secrets]:
    """Return the request with None for each secret and the content of each file, and those by their places: sealed,
    each with a digest to compare it by."""
    found, secrets = _copied(request), dict[str, dict[str, str]]()
    for where, environ in _environs(found):
        for name, value in environ.items():
            if value is not None and looks_secret(name, str(value)):
                secrets[f"{where}{name}"] = _sealed(str(value))
                environ[name] = None
    for file in found.get("files", ()):
        if content := file.get("content"):
            secrets[f"{_FILES}{file['path']}"] = _sealed(content)
            file["content"] = None
    return found, secrets


def opened_request(request: Mapping[str, Any], secrets: Secrets) -> dict[str, Any]:
    """Return the request with its secrets and files. Raises UserError for one that cannot be opened any more."""
    found = _copied(request)
    for where, environ in _environs(found):
        for name in environ:
            if one := secrets.get(f"{where}{name}"):
                environ[name] = _opened(name, one)
    return found | opened_files(found, secrets)


def opened_files(request: Mapping[str, Any], secrets: Secrets) -> dict[str, Any]:
    """Return the request's files with their contents; empty if it has none. Raises UserError as ``opened_request``."""
    files = []
    for file in request.get("files", ()):
        one = secrets.get(f"{_FILES}{file['path']}")
        files.append({**file, "content": _opened(file["path"], one) if one else ""})
    return {"files": files} if files else {}


def without_values(secrets: Secrets) -> Secrets:
    """Return the secrets of a request that is launched no more: digests alone, but for files, which its copy brings."""
    return {place: one if place.startswith(_FILES) else {DIGEST: one[DIGEST]} for place, one in secrets.items()}


def _sealed(value: str) -> dict[str, str]:
    digest = hmac.digest(settings.SECRET_KEY.encode(), value.encode(), hashlib.sha256).hex()
    return {SEALED: seal(value), DIGEST: digest}


def _opened(name: str, secret: Mapping[str, str]) -> str:
    value = unseal(secret.get(SEALED, ""))
    if not value:
        raise UserError(
            "The secret {name} can no longer be read: copy the run and enter it again.", name=name, code="secret-lost"
        )
    return value


def _copied(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy whose variables and files can be changed."""
    found = dict(request)
    if "files" in found:
        found["files"] = [dict(file) for file in found["files"]]
    if "environ" in found:
        found["environ"] = dict(found["environ"])
    if "roles" in found:
        found["roles"] = {name: _copied(role) for name, role in found["roles"].items()}
    return found


def _environs(request: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variables of the request and of its roles, each with the place where they stand."""
    if "environ" in request:
        yield "environ.", request["environ"]
    for role, part in request.get("roles", {}).items():
        if "environ" in part:
            yield f"roles.{role}.environ.", part["environ"]
