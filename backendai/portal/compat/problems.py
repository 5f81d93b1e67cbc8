"""Gives refusals and faults under the prefix the form that the official client reads. No page leaves there."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.decorators import sync_and_async_middleware

from backendai.portal.compat.frame import PREFIX

_TYPE = "https://api.backend.ai/probs/"
_SLUGS = {
    400: "invalid-api-params", 401: "auth-failed", 403: "generic-forbidden", 404: "object-not-found",
    405: "method-not-allowed", 412: "quota-exceeded", 429: "rate-limit-exceeded", 501: "not-implemented",
    503: "service-unavailable",
}  # fmt: skip
_OWN_SLUGS = frozenset({"session-already-exists", "not-implemented"})
_AS_OTHERS = {409: 400, 422: 400, 502: 503, 507: 503}  # statuses that the client has no words for
_KEPT = ("Retry-After", "WWW-Authenticate", "Cache-Control", "X-Request-Id")


@sync_and_async_middleware
def use_client_form(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that rewrites answers with an error under the prefix."""

    def handle(request: HttpRequest) -> HttpResponseBase:
        return _formed(request, get_response(request))

    async def serve(request: HttpRequest) -> HttpResponseBase:
        return _formed(request, await get_response(request))

    return serve if iscoroutinefunction(get_response) else handle


def _formed(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    if answer.status_code < 400 or not request.path.startswith(PREFIX):
        return answer
    told = _told(answer)
    code, status = str(told.get("code", "")), answer.status_code
    status = 501 if code == "not-implemented" else status
    slug = code if code in _OWN_SLUGS else _SLUGS.get(_AS_OTHERS.get(status, status), "internal-server-error")
    body = {
        "type": _TYPE + slug,
        "title": told["detail"],
        "code": code,
        "data": {} if status == 501 else told.get("data") or {},
    }
    kept = {name: answer[name] for name in _KEPT if name in answer}
    formed = JsonResponse(body, status=_AS_OTHERS.get(status, status), headers=kept)
    formed["Content-Type"] = "application/problem+json"
    answer.close()
    return formed


def _told(answer: HttpResponseBase) -> dict[str, Any]:
    """Return the problem document of the answer; of a page or a plain text, one sentence about its status."""
    is_json = answer.get("Content-Type", "").partition(";")[0].endswith("json") and not answer.streaming
    told = json.loads(getattr(answer, "content")) if is_json else {}  # noqa: B009
    status = HTTPStatus(answer.status_code)
    return {"detail": f"{status.phrase}. {status.description}.".replace(". .", "."), **told}
