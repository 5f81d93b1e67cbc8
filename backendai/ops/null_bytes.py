"""Requests with NUL characters: no text of ours has any, and PostgreSQL refuses them only when it is too late."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from django.http import HttpRequest, HttpResponse

View = Callable[[HttpRequest], HttpResponse]


def refuse_null_bytes(view: View) -> View:
    """Middleware: answer 400 when the query or a cookie has a NUL in it."""

    def guarded(request: HttpRequest) -> HttpResponse:
        # REST names the parameter that is wrong by itself.
        query = [] if request.path.startswith("/api/") else [*request.GET, *chain(*dict(request.GET.lists()).values())]
        if any("\0" in text for text in chain(request.COOKIES.values(), query)):
            return HttpResponse("The request has a NUL character in it.", status=400, content_type="text/plain")
        return view(request)

    return guarded
