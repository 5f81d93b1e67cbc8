"""What is read once for a request, however often a page asks for it, and forgotten with the request.

A cache that outlives the request would show what administrators have changed meanwhile; nobody would know for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase

T = TypeVar("T")
_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("kept_for_request", default=None)


def keep_for_request(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware: begin to keep, and forget."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        _kept.set({})
        try:
            return get_response(request)
        finally:
            _kept.set(None)

    return middleware


def once(name: Hashable, read: Callable[[], T]) -> T:
    """Return what ``read`` returns; within a request it is called once for each name."""
    kept = _kept.get()
    if kept is None:
        return read()
    if name not in kept:
        kept[name] = read()
    return cast(T, kept[name])


def is_within_request() -> bool:
    """Return whether anything is kept."""
    return _kept.get() is not None


def forget() -> None:
    """Read everything anew from now on: something of it was changed."""
    if (kept := _kept.get()) is not None:
        kept.clear()
