"""Limits how often an account, or an address without a login, may load pages. REST and agents have other limits."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from backendai.accounts.models import User
from backendai.accounts.rates import TooFast, check_page_rate, check_stranger_rate
from backendai.texts.messages import in_words

_NOT_COUNTED = ("/api/", "/node/", "/static/", "/healthz", "/readyz")


def limit_pages(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Return the middleware, which answers requests above the limit with 429 and ``Retry-After``."""

    def handle(request: HttpRequest) -> HttpResponse:
        if not request.path.startswith(_NOT_COUNTED):
            try:
                _count(request)
            except TooFast as error:
                headers = {"Retry-After": str(error.seconds)}
                return HttpResponse(in_words(error.message), status=429, content_type="text/plain", headers=headers)
        return get_response(request)

    return handle


def _count(request: HttpRequest) -> None:
    if isinstance(request.user, User):
        check_page_rate(request.user, now=timezone.now())
    else:
        check_stranger_rate(request.META.get("REMOTE_ADDR", ""), now=timezone.now())
