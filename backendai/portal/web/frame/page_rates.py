"""Limits how often an account, or an address without a login, may load pages. REST and agents have other limits."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import User
from backendai.domain.accounts.rates import TooFast, check_page_rate, check_stranger_rate

_NOT_COUNTED = ("/api/", "/node/", "/compat", "/static/", "/healthz", "/readyz")


class LimitPages(MiddlewareMixin):
    """A middleware that answers requests above the limit with 429 and ``Retry-After``."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Count the request, and return the refusal, or None."""
        if request.path.startswith(_NOT_COUNTED):
            return None
        try:
            _count(request)
        except TooFast as error:
            headers = {"Retry-After": str(error.seconds)}
            return HttpResponse(in_words(error.message), status=429, content_type="text/plain", headers=headers)
        return None


def _count(request: HttpRequest) -> None:
    if isinstance(request.user, User):
        check_page_rate(request.user, now=timezone.now())
    else:
        check_stranger_rate(request.META.get("REMOTE_ADDR", ""), now=timezone.now())
