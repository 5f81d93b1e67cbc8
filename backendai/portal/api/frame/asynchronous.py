"""Asynchronous REST views that wait for an agent without holding a thread or a database connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection
from rest_framework.request import Request
from rest_framework.views import APIView

P = ParamSpec("P")
T = TypeVar("T")


async def look(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``read`` in a thread and return its result; releases its database connection at once."""
    return await sync_to_async(_look)(read, *args, **kwargs)


class AsyncAPIView(APIView):
    """A view with coroutines as handlers, which query the database by ``look``."""

    async def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Authenticate the request, call its handler, and respond."""
        self.args, self.kwargs = args, kwargs
        asked: Request = self.initialize_request(request, *args, **kwargs)
        self.request, self.headers = asked, self.default_response_headers
        try:
            await look(self.initial, asked, *args, **kwargs)
            name = (asked.method or "").lower()
            handler = getattr(self, name, None) if name in self.http_method_names else None
            answer = await handler(asked, *args, **kwargs) if handler else self._refused(asked, *args, **kwargs)
        except Exception as error:
            answer = await look(self.handle_exception, error)
        self.response = self.finalize_response(asked, answer, *args, **kwargs)
        return self.response

    async def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Describe the view."""
        return await look(super().options, request, *args, **kwargs)

    def _refused(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        return self.http_method_not_allowed(request, *args, **kwargs)


def _look(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return read(*args, **kwargs)
    finally:
        if not connection.in_atomic_block:  # a test's
            close_old_connections()
