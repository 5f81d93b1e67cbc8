"""How an address is served, and the largest body that it takes: views declare it, and the server asks here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.urls import Resolver404, resolve

LARGEST_BODY = 5 * 2**20
LARGEST_BODY_OF_STRANGERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Serving:
    """How requests to a view are served.

    ``largest_body`` in bytes, ``largest_of_strangers`` without a cookie or ``Authorization``. ``is_async``: the view is
    a coroutine, which holds no thread while it waits. ``is_streamed``: it reads the body as it arrives.
    """

    largest_body: int = LARGEST_BODY
    largest_of_strangers: int = LARGEST_BODY_OF_STRANGERS
    is_async: bool = False
    is_streamed: bool = False


USUAL = Serving()


def serving_at(path: str) -> Serving:
    """Return how the view at this path is served."""
    return _found(path, settings.ROOT_URLCONF)


@lru_cache(4096)  # pages ask for the same addresses again and again, and resolving one is a tenth of a short request
def _found(path: str, urls: str) -> Serving:
    try:
        return serving_of(resolve(path, urls).func)
    except Resolver404:
        return USUAL


def serving_of(view: Any) -> Serving:
    """Return how this view is served.

    Asynchronously exactly if it is a coroutine; its class may declare ``largest_body`` and ``is_streamed``.
    """
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    largest: int = getattr(kind, "largest_body", LARGEST_BODY)
    return Serving(largest, is_async=iscoroutinefunction(view), is_streamed=getattr(kind, "is_streamed", False))
