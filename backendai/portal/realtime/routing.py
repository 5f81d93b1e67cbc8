"""Addresses of the websockets."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from django.urls import path, re_path

from backendai.portal.realtime.events import EventsConsumer
from backendai.portal.realtime.logs import LogConsumer
from backendai.portal.realtime.origin import OriginGate
from backendai.portal.realtime.runs import RunsConsumer
from backendai.portal.realtime.terminal import TerminalConsumer


async def nowhere(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Refuse the handshake (HTTP 403), as the address is unknown."""
    await receive()
    await send({"type": "websocket.close"})


_nowhere: Any = nowhere  # the types of ``path`` know HTTP views only
websocket_urlpatterns = [
    path("ws/events/", EventsConsumer.as_asgi(), name="ws-events"),
    path("ws/sessions/<uuid:session_id>/terminal/", TerminalConsumer.as_asgi(), name="ws-terminal"),
    path("ws/sessions/<uuid:session_id>/runs/", RunsConsumer.as_asgi(), name="ws-runs"),
    path("ws/sessions/<uuid:session_id>/logs/", LogConsumer.as_asgi(), name="ws-logs"),
    re_path("^", _nowhere, name="ws-nowhere"),
]
websocket_application = OriginGate(URLRouter(websocket_urlpatterns))
