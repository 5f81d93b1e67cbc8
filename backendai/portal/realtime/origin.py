"""Rejects websockets from pages of other origins, which browsers would open with the visitor's cookies."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from backendai.portal.realtime.credentials import credentials_of, headers_of


class OriginGate:
    """Refuses a handshake (HTTP 403) from a page of another origin.

    A handshake without an origin comes from a script, which must send a bearer token.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if is_welcome(scope):
            await self._application(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close"})


def is_welcome(scope: dict[str, Any]) -> bool:
    """Return whether the handshake comes from the portal's own page, or from a script with a token."""
    headers = headers_of(scope)
    origin = headers.get("origin")
    if origin is None:
        return credentials_of(scope).bearer is not None
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    host = headers.get("host", "").lower()
    return bool(host) and urlsplit(origin).netloc.lower() == host
