"""The portal does not answer to names of apps: a login there would give its cookie to what users run."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

_MISDIRECTED = 421


def refuse_app_hosts(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Return the middleware."""

    def handle(request: HttpRequest) -> HttpResponse:
        name = request.META.get("HTTP_HOST", "").lower().partition(":")[0].rstrip(".")
        if name == settings.APPS_DOMAIN or name.endswith(f".{settings.APPS_DOMAIN}"):
            text = "This name belongs to an app of a session. The portal has another."
            return HttpResponse(text, status=_MISDIRECTED, content_type="text/plain")
        return get_response(request)

    return handle
