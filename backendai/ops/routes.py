"""The limits of requests by address: size and speed of bodies, and asynchronous views."""

from __future__ import annotations

import re
from dataclasses import dataclass

LARGEST_BODY = 5 * 2**20
LARGEST_BODY_OF_STRANGERS = 64 * 1024
BODY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Route:
    """The limits for paths that match completely.

    ``largest_body`` in bytes, ``largest_of_strangers`` without a cookie or ``Authorization``. ``body_seconds``: the
    time for 16 KiB of a body. ``is_async``: served without its own thread and database connection, for long waits.
    ``is_streamed``: its view reads the body as it arrives.
    """

    path: re.Pattern[str]
    largest_body: int = LARGEST_BODY
    largest_of_strangers: int = LARGEST_BODY_OF_STRANGERS
    body_seconds: float = BODY_SECONDS
    is_async: bool = False
    is_streamed: bool = False


_LARGEST_UPLOAD = 2**30 + 2**20  # a file, and the form around it
_SESSION = "/api/v1/sessions/[0-9a-f-]{36}/"
ROUTES: tuple[Route, ...] = (
    Route(re.compile(r"/node/v1/sync"), is_async=True),  # a long poll
    Route(re.compile(_SESSION + "(runs|contexts|complete|execute)/.*"), is_async=True),
    Route(re.compile(_SESSION + "files/.*"), largest_body=_LARGEST_UPLOAD, is_async=True, is_streamed=True),
)
_USUAL = Route(re.compile(""))


def route_of(path: str) -> Route:
    """Return the limits of this path: the first route that matches, else the default."""
    return next((route for route in ROUTES if route.path.fullmatch(path)), _USUAL)
