"""Rejects requests with NUL characters. No text of the platform has any, and PostgreSQL rejects them only late."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from django.http import HttpRequest, HttpResponse

View = Callable[[HttpRequest], HttpResponse]


def refuse_null_bytes(view: View) -> View:
    """Return a middleware that answers 400 if the query or a cookie contains a NUL."""

    def guarded(request: HttpRequest) -> HttpResponse:
        # REST names the parameter that is wrong by itself.
        query = [] if request.path.startswith("/api/") else [*request.GET, *chain(*dict(request.GET.lists()).values())]
        if any("\0" in text for text in chain(request.COOKIES.values(), query)):
            return HttpResponse("The request has a NUL character in it.", status=400, content_type="text/plain")
        return view(request)

    return guarded
