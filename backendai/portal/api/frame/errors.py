"""Answers with errors as RFC 9457 problems:

``code`` is stable, ``detail`` is a sentence, ``field`` names the input. A fault of the platform is logged under an id,
and the answer has only the id. A PlatformError, which a silent guest causes with each question, is one line of the log.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, TooManyFieldsSent
from django.http import Http404, HttpResponse, JsonResponse
from rest_framework.exceptions import APIException, ValidationError

from backendai.base.core.errors import (
    BadAnswer,
    Changed,
    Conflict,
    KeyReused,
    NotAllowed,
    NotFound,
    Overloaded,
    PlatformError,
    StorageFull,
    UserError,
)
from backendai.base.db.database_faults import is_away, is_busy, is_full
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.rates import TooFast
from backendai.domain.activity.request_facts import request_id
from backendai.domain.storage.file_server import FileServerError

logger = logging.getLogger(__name__)

_MOST_ERRORS = 20
_LONGEST_NAME = 100
_WHOLE_OBJECT = "non_field_errors"
_OF_FILE_SERVERS = frozenset({403, 404, 409, 412, 413, 503, 507})  # answered as they come; others are wrong requests


class BodyTooLarge(APIException):
    """The request's body exceeds the limit of its address."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_code = "body-too-large"


class Replayed(Exception):
    """The request was served before: ``answer`` is sent again."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__()
        self.answer = answer


def handle_exception(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Return the problem document for an exception of a view, or None if a middleware handles it."""
    if isinstance(error, Replayed):
        return error.answer
    if is_away(error) or is_busy(error) or is_full(error):
        return None
    if isinstance(error, UserError):
        return _user_problem(error)
    if isinstance(error, PlatformError):
        return _own_fault(error, context, HTTPStatus.SERVICE_UNAVAILABLE, error.code)
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, Http404):
        return problem(HTTPStatus.NOT_FOUND, "not-found", "There is nothing here that you may see.")
    if isinstance(error, PermissionDenied):
        return problem(HTTPStatus.FORBIDDEN, "permission-denied", "You may not do this.")
    if isinstance(error, TooManyFieldsSent):
        most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
        return problem(HTTPStatus.BAD_REQUEST, "too-many-fields", f"A request has at most {most} fields.")
    if isinstance(error, APIException):
        return _framework_problem(error)
    return _own_fault(error, context, HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error")


def problem(status: int, code: str, detail: str, **members: Any) -> JsonResponse:
    """Return a problem document without members that are None or empty."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": int(status), "detail": detail}
    body |= {"code": code.replace("_", "-")} | {name: value for name, value in members.items() if value}
    answer = JsonResponse(body, status=int(status), content_type="application/problem+json")
    answer.reason_code = body["code"]  # type: ignore[attr-defined]  # for the audit trail
    return answer


def _user_problem(error: UserError) -> JsonResponse:
    status = HTTPStatus.BAD_REQUEST
    if isinstance(error, NotFound):
        status = HTTPStatus.NOT_FOUND
    elif isinstance(error, NotAllowed):
        status = HTTPStatus.FORBIDDEN
    elif isinstance(error, Changed):
        status = HTTPStatus.PRECONDITION_FAILED
    elif isinstance(error, KeyReused):
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    elif isinstance(error, Conflict):
        status = HTTPStatus.CONFLICT
    elif isinstance(error, Overloaded | TooFast):
        status = HTTPStatus.TOO_MANY_REQUESTS
    elif isinstance(error, BadAnswer):
        status = HTTPStatus.BAD_GATEWAY
    elif isinstance(error, StorageFull):
        status = HTTPStatus.INSUFFICIENT_STORAGE
    elif isinstance(error, FileServerError):
        status = HTTPStatus(error.status if error.status in _OF_FILE_SERVERS else HTTPStatus.BAD_REQUEST)
    answer = problem(status, error.code, in_words(error.message), field=error.field, data=dict(error.details))
    if isinstance(error, TooFast):
        answer["Retry-After"] = str(error.seconds)
    if isinstance(error, BadAnswer):
        logger.warning("shown as %d: %r", status, str(error))
        answer._has_been_logged = True  # type: ignore[attr-defined]  # as an error, by Django
    return answer


def _invalid(error: ValidationError) -> JsonResponse:
    errors = list(_flat(error.detail, ""))[:_MOST_ERRORS]
    first = errors[0] if errors else {"field": "", "detail": "The request is not valid.", "code": "invalid-request"}
    field = first["field"]
    detail = f"{field}: {first['detail']}" if field else first["detail"]
    return problem(HTTPStatus.BAD_REQUEST, "invalid-request", detail, field=field, errors=errors)


def _flat(detail: Any, path: str) -> Iterator[dict[str, str]]:
    if isinstance(detail, dict):
        for name, inner in detail.items():
            step = "" if name == _WHOLE_OBJECT else str(name)[:_LONGEST_NAME]
            yield from _flat(inner, f"{path}.{step}".strip("."))
    elif isinstance(detail, list):
        for inner in detail:
            yield from _flat(inner, path)
    else:
        code = getattr(detail, "code", "invalid").replace("_", "-")
        yield {"field": path, "code": code, "detail": str(detail)}


def _framework_problem(error: APIException) -> JsonResponse:
    codes = error.get_codes()
    answer = problem(error.status_code, codes if isinstance(codes, str) else "invalid-request", str(error.detail))
    if challenge := getattr(error, "auth_header", None):
        answer["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        answer["Retry-After"] = str(math.ceil(wait))
    return answer


def _own_fault(error: Exception, context: dict[str, Any], status: HTTPStatus, code: str) -> JsonResponse:
    error_id = request_id() or uuid.uuid4().hex[:12]
    view = type(context.get("view")).__name__
    if isinstance(error, PlatformError):
        logger.warning("%s in %s, shown as %s: %r", type(error).__name__, view, error_id, str(error))
    else:
        logger.error("%s in %s, shown as %s", type(error).__name__, view, error_id, exc_info=error)
    detail = f"This is a fault of the platform, not of the request. Its administrators find it under {error_id}."
    answer = problem(status, code, detail, id=error_id)
    answer._has_been_logged = True  # type: ignore[attr-defined]  # else Django logs it again, without the id
    return answer
