"""Users who must have a second factor and have none can only set one up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.second_factors import NOBODY, is_missing
from backendai.domain.accounts.sign_in.signatures import SCHEME

_ALWAYS_OPEN = ("/account/security/", "/login/", "/logout/", "/static/", "/node/", "/compat", "/healthz", "/readyz")
_API = "/api/"
_KEYS = ("bearer ", f"{SCHEME.lower()} ")  # REST refuses a bad one, and no login beside them counts; pages read none
_WANTED = "wanted_page"  # in the session; the pages of the set-up lead there once it is done
_LONGEST = 2000  # a filled launch form has a long address, and a session is a row
_TEXT = _l("A second factor is required here. Set one up to continue.")


@sync_and_async_middleware
def gate(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that refuses logins without a required second factor.

    Tokens and signatures still reach REST, as a complete login created them.
    """
    if not iscoroutinefunction(get_response):
        return lambda request: _refusal(request) or get_response(request)

    async def serve(request: HttpRequest) -> HttpResponseBase:
        refused = None if _is_open(request) else await sync_to_async(_refusal)(request)
        answer: HttpResponseBase = refused or await get_response(request)
        return answer

    return serve


def _is_open(request: HttpRequest) -> bool:
    has_key = request.META.get("HTTP_AUTHORIZATION", "").lower().startswith(_KEYS)
    by_key = has_key and request.path.startswith(_API)
    return settings.REQUIRE_MFA == NOBODY or by_key or request.path.startswith(_ALWAYS_OPEN)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if _is_open(request) or not isinstance(request.user, User):
        return None
    if not is_missing(request.user, request.session):
        request.session.pop(_WANTED, None)
        return None
    if request.path.startswith(_API):
        body = {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": str(_TEXT)}
        return JsonResponse(
            body | {"code": "second-factor-required"}, status=403, content_type="application/problem+json"
        )
    if request.headers.get("HX-Request"):  # a part of a page: the whole other page does not belong into it
        return HttpResponse(_TEXT, status=403, content_type="text/plain")
    _remember(request)
    return HttpResponseRedirect(reverse("mfa_index"))


def _remember(request: HttpRequest) -> None:
    """Store the requested page for the time after the set-up. The start page does not replace a stored one."""
    address = request.get_full_path()
    is_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "text/html")
    if is_page and request.path != "/" and len(address) <= _LONGEST:
        request.session[_WANTED] = address
