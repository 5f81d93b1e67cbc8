"""Detects lost updates by entity tags.

A change whose ``If-Match`` names another version than the current one is rejected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Model
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import APIView

# These change without anybody who changes the thing: of people and what is held, of endpoints, of folders.
_UNTOUCHED = {
    "last_login", "members", "projects", "used_by",
    "desired", "health", "next_revision", "p95", "ready", "reason", "requests_per_second", "revision",
    "changed_at", "is_limit_enforced", "is_reachable", "measured_at", "status", "status_message", "used_bytes",
    "used_files",
}  # fmt: skip


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


class VersionedView(APIView):
    """The base of the view of one row whose ``ETag`` is the ``If-Match`` of its PATCH; its ``get`` shows the row."""

    is_versioned = True
    versioned: ClassVar[tuple[type[Model], str]]  # the model, and its field that is in the address

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Serve the request; with a version in one transaction, which locks the row."""
        if not _names_version(request):
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check who asks, and raise 412 if the request names another version."""
        super().initial(request, *args, **kwargs)
        if _names_version(request):
            (model, field), (key,) = self.versioned, kwargs.values()
            model._default_manager.select_for_update().filter(**{field: key}).first()
            check_seen(request, _shown(self.get(request, *args, **kwargs)))  # type: ignore[attr-defined]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the response with the tag of the row that it shows."""
        if request.method in ("GET", "PATCH") and response.status_code == HTTPStatus.OK:
            response["ETag"] = tag_of(_shown(response))
        return super().finalize_response(request, response, *args, **kwargs)


def _names_version(request: Any) -> bool:
    return request.method == "PATCH" and "If-Match" in request.headers


def _shown(response: Response) -> Mapping[str, Any]:
    """Return the values of a response, of which a text is one."""
    return response.data if isinstance(response.data, Mapping) else {"text": response.data}
