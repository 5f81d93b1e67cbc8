"""Remembers the browsers in which an account has signed in. In those, failed sign-ins of strangers cause no wait."""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase

_SALT = "known browser"
_LASTS_SECONDS = 365 * 24 * 3600
_MOST_ACCOUNTS = 8


def is_known(request: HttpRequest, email: str) -> bool:
    """Return whether this account has signed in with this browser within a year."""
    return _mark_of(email) in _marks(request)


def remember_browser(request: HttpRequest, response: HttpResponseBase, email: str) -> None:
    """Set a signed cookie which records that this account has signed in. The cookie does not sign anybody in."""
    mark = _mark_of(email)
    marks = [mark, *(one for one in _marks(request) if one != mark)][:_MOST_ACCOUNTS]
    response.set_cookie(
        _cookie_name(),
        signing.dumps(marks, salt=_SALT),
        max_age=_LASTS_SECONDS,
        secure=settings.SECURE,
        httponly=True,
        samesite="Lax",
    )


def _cookie_name() -> str:
    return "__Host-known" if settings.SECURE else "known"


def _marks(request: HttpRequest) -> list[str]:
    text = request.COOKIES.get(_cookie_name(), "")
    if not text:
        return []
    try:
        return [str(mark) for mark in signing.loads(text, salt=_SALT, max_age=_LASTS_SECONDS)]
    except signing.BadSignature:
        return []


def _mark_of(email: str) -> str:
    return hashlib.sha256(email.strip().lower().encode()).hexdigest()[:32]
