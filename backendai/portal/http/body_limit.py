"""Limits the size of request bodies before they are stored.

Django's ASGI handler writes a whole body to the disk before the view can check it.
"""

from __future__ import annotations

from typing import Any

from backendai.portal.http.routes import Serving

_TOO_LARGE = b"The request is larger than this server takes.\n"


class _Outgrown(Exception):
    """The body exceeds its limit."""


async def serve_within_limit(
    application: Any, serving: Serving, scope: dict[str, Any], receive: Any, send: Any
) -> None:
    """Serve one request by this application; answers 413 if its body exceeds the limit of its view.

    The limit is lower without a cookie or ``Authorization`` header; their validity is not checked here.
    """
    most = serving.largest_body if _has_credentials(scope) else serving.largest_of_strangers
    if _announced(scope) > most:
        await _refuse(send)
        return
    seen, is_answered = 0, False

    async def counted() -> dict[str, Any]:
        nonlocal seen
        message: dict[str, Any] = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _Outgrown
        return message

    async def watched(message: dict[str, Any]) -> None:
        nonlocal is_answered
        is_answered = True
        await send(message)

    try:
        await application(scope, counted, watched)
    except _Outgrown:
        if not is_answered:
            await _refuse(send)


def _has_credentials(scope: dict[str, Any]) -> bool:
    return any(name in (b"authorization", b"cookie") for name, _ in scope["headers"])


def _announced(scope: dict[str, Any]) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def _refuse(send: Any) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(_TOO_LARGE)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": _TOO_LARGE})
