"""How an address is served, and the largest body that it takes: views declare it, and the server asks here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.urls import Resolver404, resolve

LARGEST_BODY = 5 * 2**20
LARGEST_BODY_OF_STRANGERS = 64 * 1024
_WORDS = {"api": 3, "node": 3, "manage": 2, "compat": 2}
_LONGEST_KEPT = 256  # characters: 4,096 of 60 KiB, which heads allow, would hold 240 MiB
_FIXED_WORD = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Serving:
    """How requests to a view are served.

    ``largest_body`` in bytes, ``largest_of_strangers`` without a cookie or ``Authorization``. ``is_async``: the view is
    a coroutine, which holds no thread while it waits. ``is_streamed``: it reads the body as it arrives. ``is_large``:
    its answer may take tens of megabytes while it is made, so one is made at a time. ``route``: the beginning of its
    route, by which requests are counted; ``other`` without a view.
    """

    largest_body: int = LARGEST_BODY
    largest_of_strangers: int = LARGEST_BODY_OF_STRANGERS
    is_async: bool = False
    is_streamed: bool = False
    is_large: bool = False
    route: str = "other"


USUAL = Serving()


def serving_at(path: str) -> Serving:
    """Return how the view at this path is served."""
    find = _found if len(path) <= _LONGEST_KEPT else _found.__wrapped__
    return find(path, settings.ROOT_URLCONF)


@lru_cache(4096)  # pages ask for the same addresses again and again, and resolving one is a tenth of a short request
def _found(path: str, urls: str) -> Serving:
    try:
        found = resolve(path, urls)
    except Resolver404:
        return Serving(route="static") if path.startswith(settings.STATIC_URL) else USUAL
    return replace(serving_of(found.func), route=_beginning(found.route))


def _beginning(route: str) -> str:
    """Return the first fixed words of a route: one of pages, more where the first says little."""
    words = route.replace("^", "").split("/")
    fixed = [word for word in words[: _WORDS.get(words[0], 1)] if _FIXED_WORD.fullmatch(word)]
    return "/" + "/".join(fixed)


def serving_of(view: Any) -> Serving:
    """Return how this view is served.

    Asynchronously exactly if it is a coroutine; its class may declare ``largest_body``, ``largest_of_strangers``,
    ``is_streamed`` and ``is_large``.
    """
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    largest: int = getattr(kind, "largest_body", LARGEST_BODY)
    return Serving(
        largest,
        getattr(kind, "largest_of_strangers", LARGEST_BODY_OF_STRANGERS),
        is_async=iscoroutinefunction(view),
        is_streamed=getattr(kind, "is_streamed", False),
        is_large=getattr(kind, "is_large", False),
    )
