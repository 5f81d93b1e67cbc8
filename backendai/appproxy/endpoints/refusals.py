"""Refusals to callers of endpoints: for paths under ``/v1`` in the shape of OpenAI's errors, with our codes."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from aiohttp import web

_HEADERS = {"Cache-Control": "no-store"}


class Refused(Exception):
    """The request gets no answer of a replica. ``retry_after``: seconds after which another try makes sense."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after


def answer_of(request: web.BaseRequest, refused: Refused) -> web.Response:
    """Return the answer to a refused request."""
    headers: Mapping[str, str] = _HEADERS
    if refused.retry_after is not None:
        headers = {**_HEADERS, "Retry-After": str(min(max(ceil(refused.retry_after), 1), 60))}
    if refused.status == 401:
        headers = {**headers, "WWW-Authenticate": "Bearer"}
    said: dict[str, object] = {"code": refused.code, "detail": refused.message}
    if request.path == "/v1" or request.path.startswith("/v1/"):
        kind = "invalid_request_error" if refused.status < 500 else "server_error"
        said = {"error": {"message": refused.message, "type": kind, "param": None, "code": refused.code}}
    return web.json_response(said, status=refused.status, headers=headers)
