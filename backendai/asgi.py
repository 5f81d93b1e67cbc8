"""HTTP and websockets under one ASGI server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from asgiref.sync import ThreadSensitiveContext
from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.portal")
django_application = get_asgi_application()

from backendai.api.streamed_body import StreamingHandler  # noqa: E402  (these need the set-up above)
from backendai.core.open_files import raise_open_files  # noqa: E402
from backendai.ops.body_limit import BodyLimit  # noqa: E402
from backendai.ops.buffered_responses import BufferedResponses  # noqa: E402
from backendai.ops.kept_objects import set_aside_what_stays  # noqa: E402
from backendai.ops.routes import route_of  # noqa: E402
from backendai.realtime.routing import websocket_application  # noqa: E402

_KEPT_THREADS = 16


class WorkerThreads:
    """An ASGI application whose synchronous parts run on threads that live on, with their database connections.

    Django would make a thread, and with it a connection, for each request: a third of a short request's time. All
    applications share the idle threads, as each keeps a connection whose cache has up to 16 MB.
    """

    _idle: ClassVar[list[ThreadPoolExecutor]] = []

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request on an idle thread, or a new one when there is none."""
        executor = self._idle.pop() if self._idle else ThreadPoolExecutor(1)
        try:
            async with ThreadSensitiveContext(executor=executor):
                await self._application(scope, receive, send)
        finally:
            if len(self._idle) < _KEPT_THREADS:
                self._idle.append(executor)
            else:
                executor.shutdown(wait=False)


def closing(application: Any) -> Any:
    """Return the WSGI application with its responses closed at their end: only then Django gives the request's
    database connection back to the pool, and the adapter forgets to. An answer that is complete needs none: the
    connection goes back before it is sent, as a slow reader may take minutes."""

    def call(environ: Any, start_response: Any) -> Iterator[bytes]:
        response = application(environ, start_response)
        if not getattr(response, "streaming", True):
            close_old_connections()
        try:
            yield from response
        finally:
            response.close()

    return call


waiting = WorkerThreads(django_application)
streaming = WorkerThreads(StreamingHandler())
pages = WorkerThreads(BufferedResponses(closing(WSGIHandler())))


async def http(scope: Any, receive: Any, send: Any) -> None:
    """Serve pages, REST and the node API; the few asynchronous views by Django's own ASGI handler.

    Headers with an underscore are left out: under WSGI ``X_Forwarded_Proto`` is the same as ``X-Forwarded-Proto``,
    which a proxy in front sets, and takes from browsers in its proper spelling only.
    """
    plain = [(name, value) for name, value in scope["headers"] if b"_" not in name]
    route = route_of(scope["path"])
    application = streaming if route.is_streamed else waiting if route.is_async else pages
    await application({**scope, "headers": plain}, receive, send)


raise_open_files()
application = ProtocolTypeRouter({"http": BodyLimit(http), "websocket": websocket_application})
set_aside_what_stays()
