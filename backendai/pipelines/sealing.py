"""Launch requests of steps as they are stored: values of secrets lie sealed beside them. No database."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings

from backendai.accounts.secret_box import seal, unseal
from backendai.core.errors import UserError
from backendai.core.secret_names import looks_secret

SEALED, DIGEST = "sealed", "digest"
Secrets = dict[str, dict[str, str]]  # by the place of a variable in the request


def sealed_request(request: Mapping[str, Any]) -> tuple[dict[str, Any], Secrets]:
    """Return the request with None for each secret, and the secrets: sealed, each with a digest to compare it by."""
    found, secrets = _copied(request), dict[str, dict[str, str]]()
    for where, environ in _environs(found):
        for name, value in environ.items():
            if value is not None and looks_secret(name, str(value)):
                digest = hmac.digest(settings.SECRET_KEY.encode(), str(value).encode(), hashlib.sha256).hex()
                secrets[f"{where}{name}"] = {SEALED: seal(str(value)), DIGEST: digest}
                environ[name] = None
    return found, secrets


def opened_request(request: Mapping[str, Any], secrets: Secrets) -> dict[str, Any]:
    """Return the request with its secrets. Raises UserError for one that cannot be opened any more."""
    found = _copied(request)
    for where, environ in _environs(found):
        for name in environ:
            if one := secrets.get(f"{where}{name}"):
                environ[name] = _opened(name, one)
    return found


def without_values(secrets: Secrets) -> Secrets:
    """Return the secrets of a request that is launched no more: their digests alone."""
    return {place: {DIGEST: one[DIGEST]} for place, one in secrets.items()}


def _opened(name: str, secret: Mapping[str, str]) -> str:
    value = unseal(secret.get(SEALED, ""))
    if not value:
        raise UserError(
            "The secret {name} can no longer be read: copy the run and enter it again.", name=name, code="secret-lost"
        )
    return value


def _copied(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy whose variables can be changed."""
    found = dict(request)
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
