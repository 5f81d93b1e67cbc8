"""Detects lost updates by entity tags.

A change whose ``If-Match`` names another version than the current one is rejected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.utils.encoders import JSONEncoder

# These change without anybody who changes the thing.
_UNTOUCHED = {"last_login", "members", "projects"}


class VersionConflict(APIException):
    """The object was changed since it was read."""

    status_code = HTTPStatus.PRECONDITION_FAILED
    default_code = "changed-meanwhile"
    default_detail = "Somebody has changed it since you read it. Read it again."


def tag_of(shown: Mapping[str, Any]) -> str:
    """Return the entity tag of these values."""
    kept = {name: value for name, value in shown.items() if name not in _UNTOUCHED}
    text = json.dumps(kept, sort_keys=True, cls=JSONEncoder)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def check_seen(request: Request, shown: Mapping[str, Any]) -> None:
    """Raise Stale if the request's ``If-Match`` does not name the current version.

    Call it while the row is locked, before the change.
    """
    wanted = [one.strip() for one in request.headers.get("If-Match", "*").split(",")]
    if "*" not in wanted and tag_of(shown) not in wanted:
        raise VersionConflict
