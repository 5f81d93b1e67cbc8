"""Compresses pages: a list of 70 kB crosses a slow line as 9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.decorators import sync_and_async_middleware


@sync_and_async_middleware
def compress_pages(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that compresses HTML; no asynchronous view answers with it.

    Streams stay as they are, since they would be held back; and REST, since a compressed answer has a weak ETag, which
    no ``If-Match`` accepts. Django adds random bytes, so that the length tells nothing of a page's secrets.
    """
    if iscoroutinefunction(get_response):
        return get_response
    compress = GZipMiddleware(get_response).process_response

    def answer(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = get_response(request)
        is_page = not response.streaming and response.get("Content-Type", "").startswith("text/html")
        return compress(request, response) if is_page else response

    return answer
