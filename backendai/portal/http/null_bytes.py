"""Rejects requests with NUL characters. No text of the platform has any, and PostgreSQL rejects them only late."""

from __future__ import annotations

from itertools import chain

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin


class RefuseNullBytes(MiddlewareMixin):
    """A middleware that answers 400 if the query or a cookie contains a NUL."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Return the refusal, or None."""
        # REST names the parameter that is wrong by itself.
        query = [] if request.path.startswith("/api/") else [*request.GET, *chain(*dict(request.GET.lists()).values())]
        if any("\0" in text for text in chain(request.COOKIES.values(), query)):
            return HttpResponse("The request has a NUL character in it.", status=400, content_type="text/plain")
        return None
