"""Records refused requests in the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from backendai.domain.activity.refusals import Refusal, note_refusal, refusals_of_request, write_refusals

logger = logging.getLogger(__name__)

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_REFUSED = frozenset({403, 404})


@sync_and_async_middleware
def audit_refusals(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that records refused requests.

    The rules of roles record their own refusals. Of other changing requests it records answers with 403, or 404 for
    objects that are not visible.
    """

    def handle(request: HttpRequest) -> HttpResponse:
        with refusals_of_request() as refusals:
            response: HttpResponse = get_response(request)
            _record(request, response, refusals)
        return response

    async def serve(request: HttpRequest) -> HttpResponse:
        with refusals_of_request() as refusals:
            response: HttpResponse = await get_response(request)
            if refusals or _is_refused(request, response):
                await sync_to_async(_record)(request, response, refusals)
        return response

    return serve if iscoroutinefunction(get_response) else handle


def _is_refused(request: HttpRequest, response: HttpResponse) -> bool:
    return request.method not in _SAFE and response.status_code in _REFUSED


def _record(request: HttpRequest, response: HttpResponse, refusals: list[Refusal]) -> None:
    if not refusals and _is_refused(request, response):
        _note(request, response)
    if refusals:
        try:
            write_refusals(refusals, now=timezone.now())
        except DatabaseError:
            logger.exception("a refused attempt is not in the audit trail")


def _note(request: HttpRequest, response: HttpResponse) -> None:
    """Record the refused request by the name of its route, as the path can contain typed text."""
    user, match = getattr(request, "user", None), request.resolver_match
    if match is None or user is None or not user.is_authenticated:
        return
    details: dict[str, Any] = {"method": request.method, "status": response.status_code}
    if code := getattr(response, "reason_code", ""):
        details["code"] = code
    target = next((value for name, value in match.kwargs.items() if name == "pk" or name.endswith("_id")), "")
    note_refusal(user.pk, match.view_name or "address", "address", target, **details)
