"""Choosing the language of the pages: for a person, and for this browser before anybody has signed in."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from backendai.accounts.models import User
from backendai.accounts.services.language import choose_language


@require_POST
@never_cache
def language(request: HttpRequest) -> HttpResponse:
    """Speak the language from now on and go back to the page; a language that there is not changes nothing."""
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
    """Return the page to go back to, one of ours; the referrer knows how its script has changed the address since."""
    page, referrer = request.POST.get("next", ""), request.headers.get("Referer", "")
    if urlsplit(referrer).path == urlsplit(page).path:
        page = referrer
    known = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    return page if known else "/"
