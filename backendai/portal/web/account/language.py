"""Chooses the language of the pages: for the user, or for the browser of a stranger."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.language import choose_language


@require_POST
@never_cache
def language(request: HttpRequest) -> HttpResponse:
    """Save the language, and redirect to the page. An unknown language changes nothing."""
    answer = HttpResponseRedirect(_back(request))
    wanted = request.POST.get("language", "")
    if wanted not in dict(settings.LANGUAGES):
        return answer
    if isinstance(request.user, User):
        choose_language(request.user, wanted)
    answer.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        wanted,
        max_age=settings.LANGUAGE_COOKIE_AGE,
        secure=settings.LANGUAGE_COOKIE_SECURE,
        httponly=settings.LANGUAGE_COOKIE_HTTPONLY,
        samesite="Lax",
    )
    return answer


def _back(request: HttpRequest) -> str:
    """Return the page of the portal to go back to.

    The Referer is preferred, as the page's script may have changed the address.
    """
    page, referrer = request.POST.get("next", ""), request.headers.get("Referer", "")
    if urlsplit(referrer).path == urlsplit(page).path:
        page = referrer
    known = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    return page if known else "/"
