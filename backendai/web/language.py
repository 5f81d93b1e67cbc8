"""In which language a page speaks: the person's own choice, else this browser's, else what the browser asks for.

REST answers know the request's header alone: a script's answers shall not change because somebody clicked in a browser.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.translation.trans_real import get_languages

from backendai.accounts.models import User
from backendai.texts.languages import language_asked_for

_FOR_PROGRAMS = ("/api/", "/node/")


class Language(LocaleMiddleware):
    """Activates the language of each request. It stands below the middleware that knows who asks."""

    def process_request(self, request: HttpRequest) -> None:
        """Activate the language until the request is over."""
        asked = request.headers.get("Accept-Language", "")
        chosen = language_asked_for(asked) if request.path.startswith(_FOR_PROGRAMS) else _chosen(request)
        translation.activate(chosen)
        request.LANGUAGE_CODE = translation.get_language()

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Say which language it is, and what that depended on."""
        response = super().process_response(request, response)
        if settings.LANGUAGE_COOKIE_NAME in request.COOKIES:
            patch_vary_headers(response, ("Cookie",))
        return response


def _chosen(request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    own = user.language if isinstance(user, User) else ""
    return own if own in get_languages() else translation.get_language_from_request(request)
