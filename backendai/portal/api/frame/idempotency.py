"""Repeats the answer to a POST that comes again with its ``Idempotency-Key``, instead of acting a second time.

All POSTs with a JSON body take a key, except those that only read. A launch keeps its key in its own row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from backendai.base.core.errors import UserError
from backendai.domain.accounts.answers import KeyedRequest, answer_to, claim, keep, release
from backendai.domain.accounts.models import StoredAnswer, User
from backendai.domain.accounts.scopes import Scope
from backendai.portal.api.frame.errors import Replayed
from backendai.portal.api.frame.parsing import StrictJSONParser

_REPLAYED = "Idempotency-Replayed"
_LONGEST = 128
_CLAIMED = "claimed_answer"  # an attribute of the request


def idempotency_key(request: Request) -> str | None:
    """Return the request's ``Idempotency-Key``, or None. Raises UserError for an invalid one."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if len(key) > _LONGEST or not key.isprintable():
        raise UserError(
            "An Idempotency-Key has at most {longest} printable characters.", longest=_LONGEST, code="invalid-key"
        )
    return key or None


def takes_key(view: Any) -> bool:
    """Return whether the POST of this view, or class, takes an ``Idempotency-Key``."""
    return StrictJSONParser in view.parser_classes and getattr(view, "token_scopes", None) != (Scope.READ,)


def launched_answer(body: Any, *, is_new: bool) -> Response:
    """Return the answer of a view with ``keeps_key``: 201, or 200 and the earlier row as it is now."""
    return Response(body, 201) if is_new else Response(body, 200, headers={_REPLAYED: "true"})


class RepeatedRequests(BaseThrottle):
    """Finds the answer to a repeated POST. It limits nothing: throttles come last before an allowed request is served.

    A view with ``keeps_key`` is served, as its service recognizes the key.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return True. Raises Replayed with the earlier answer, KeyReused, or Conflict."""
        if request.method != "POST" or not takes_key(view) or getattr(view, "keeps_key", False):
            return True
        key, now = idempotency_key(request), timezone.now()
        if key and isinstance(request.user, User):
            asked = KeyedRequest(request.user, key, request.get_full_path(), request.body)
            claimed = claim(asked, now=now)
            if claimed.status is not None:
                raise Replayed(_answer(claimed, asked))
            setattr(request._request, _CLAIMED, (claimed, asked))
        return True


@sync_and_async_middleware
def keep_answers(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that stores the answers to requests with a key."""

    def handle(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = get_response(request)
        _keep(request, response)
        return response

    async def serve(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = await get_response(request)
        if hasattr(request, _CLAIMED):
            await sync_to_async(_keep)(request, response)
        return response

    return serve if iscoroutinefunction(get_response) else handle


def _keep(request: HttpRequest, response: HttpResponse) -> None:
    """Store an answer of success, and free the key of a request that was refused or failed."""
    if not (found := getattr(request, _CLAIMED, None)):
        return
    claimed, asked = found
    if response.status_code < 300:
        keep(claimed, asked, response.status_code, response.content.decode())
    else:
        release(claimed)


def _answer(kept: StoredAnswer, asked: KeyedRequest) -> HttpResponse:
    return HttpResponse(
        answer_to(kept, asked), status=kept.status, content_type="application/json", headers={_REPLAYED: "true"}
    )
