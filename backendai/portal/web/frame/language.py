"""Chooses the language of a page: the user's own, else this browser's cookie, else the header.

REST answers use only the header of the request, so that a choice in a browser does not change the answers to a script.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers

from backendai.base.texts.translation import language_asked_for
from backendai.domain.accounts.models import User

_FOR_PROGRAMS = ("/api/", "/node/", "/compat")


class Language(LocaleMiddleware):
    """A middleware that activates the language of each request. It runs after the middleware that sets the user."""

    def process_request(self, request: HttpRequest) -> None:
        """Activate the language of the request."""
        asked = request.headers.get("Accept-Language", "")
        chosen = language_asked_for(asked) if request.path.startswith(_FOR_PROGRAMS) else _chosen(request)
        translation.activate(chosen)
        request.LANGUAGE_CODE = translation.get_language()

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Set the headers ``Content-Language`` and ``Vary``."""
        response = super().process_response(request, response)
        if settings.LANGUAGE_COOKIE_NAME in request.COOKIES:
            patch_vary_headers(response, ("Cookie",))
        return response


def _chosen(request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    own = user.language if isinstance(user, User) else ""
    return own if own in dict(settings.LANGUAGES) else translation.get_language_from_request(request)
