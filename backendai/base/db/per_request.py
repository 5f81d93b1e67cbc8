"""Caches values for the duration of a request.

A longer cache would show outdated values after changes by administrators.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

T = TypeVar("T")
_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("kept_for_request", default=None)


@sync_and_async_middleware
def keep_for_request(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that caches values for the duration of each request."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        _kept.set({})
        try:
            answer: HttpResponseBase = get_response(request)
        finally:
            _kept.set(None)
        return answer

    async def serve(request: HttpRequest) -> HttpResponseBase:
        _kept.set({})
        try:
            answer: HttpResponseBase = await get_response(request)
        finally:
            _kept.set(None)
        return answer

    return serve if iscoroutinefunction(get_response) else middleware


def once(name: Hashable, read: Callable[[], T]) -> T:
    """Return the result of ``read``. Within a request it is called once for each name."""
    kept = _kept.get()
    if kept is None:
        return read()
    if name not in kept:
        kept[name] = read()
    return cast(T, kept[name])


def is_within_request() -> bool:
    """Return whether there is a cache of the current request."""
    return _kept.get() is not None


def forget() -> None:
    """Empty the cache, after one of its values was changed."""
    if (kept := _kept.get()) is not None:
        kept.clear()
