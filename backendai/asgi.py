"""HTTP and websockets under one ASGI server."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext
from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections, connection

from backendai.portal.http.metrics.sharing import share_counts

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.portal")
share_counts(settings.DATA_DIR)  # before anything that counts is imported
waiting = get_asgi_application()

from backendai.base.process.open_files import raise_open_files  # noqa: E402
from backendai.portal.api.frame.streamed_body import StreamingHandler  # noqa: E402  (these need the set-up above)
from backendai.portal.compat.frame import PREFIX  # noqa: E402
from backendai.portal.compat.sockets import websockets  # noqa: E402
from backendai.portal.http.body_limit import serve_within_limit  # noqa: E402
from backendai.portal.http.buffered_responses import BufferedResponses  # noqa: E402
from backendai.portal.http.garbage_collection import give_back_what_is_freed, set_aside_what_stays  # noqa: E402
from backendai.portal.http.metrics.requests import counting  # noqa: E402
from backendai.portal.http.routes import serving_at  # noqa: E402
from backendai.portal.realtime.routing import websocket_application  # noqa: E402

P = ParamSpec("P")
T = TypeVar("T")

_MOST_THREADS = 32


class Threads(ThreadPoolExecutor):
    """The threads of all synchronous work. Work beyond their number waits for its turn.

    A thread per request would keep a database connection each. Of a waiting request, no thread is its own.
    """

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run this in a thread, whose database connection goes back to the pool at its end."""
        return super().submit(_released, partial(call, *args, **kwargs))


def _released(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        if not connection.in_atomic_block:  # a test's
            close_old_connections()


threads = Threads(_MOST_THREADS, thread_name_prefix="work")
streaming = StreamingHandler()
pages = BufferedResponses(handler := WSGIHandler())
large = BufferedResponses(handler, is_large=True)


async def http(scope: Any, receive: Any, send: Any) -> None:
    """Serve pages, REST and the node API; asynchronous views by Django's own ASGI handler.

    Headers with an underscore are left out: under WSGI ``X_Forwarded_Proto`` is the same as ``X-Forwarded-Proto``,
    which a proxy in front sets, and takes from browsers in its proper spelling only.
    """
    plain = [(name, value) for name, value in scope["headers"] if b"_" not in name]
    serving = serving_at(scope["path"])
    of_threads = large if serving.is_large and scope["method"] == "GET" else pages
    application = streaming if serving.is_streamed else waiting if serving.is_async else of_threads
    async with ThreadSensitiveContext(executor=threads):
        with counting(scope["method"], serving.route, send) as answer:
            await serve_within_limit(application, serving, {**scope, "headers": plain}, receive, answer)


async def websocket(scope: Any, receive: Any, send: Any) -> None:
    """Serve websockets; those of the official client sign their handshake, and no page can open them."""
    of_client = scope["path"].startswith(f"{PREFIX}/")
    await (websockets if of_client else websocket_application)(scope, receive, send)


raise_open_files()
give_back_what_is_freed()
application = ProtocolTypeRouter({"http": http, "websocket": websocket})
set_aside_what_stays()
