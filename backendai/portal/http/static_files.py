"""Serves the assets of the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware


@sync_and_async_middleware
def serve_files(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that answers requests for assets, which no asynchronous view gets.

    The library's own is for threads only: one middleware of that kind costs each waiting request a thread.
    """
    return get_response if iscoroutinefunction(get_response) else WhiteNoiseMiddleware(get_response)
