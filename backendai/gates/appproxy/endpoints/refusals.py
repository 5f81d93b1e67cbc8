"""Builds the error answers of endpoints. Under ``/v1`` they have the form of OpenAI's errors, with the platform's
codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from aiohttp import web

from backendai.gates.gateways.answers import InvalidAnswer

_HEADERS = {"Cache-Control": "no-store"}


class Refused(Exception):
    """The proxy rejects the request itself. ``retry_after``: seconds after which a retry makes sense."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after


def broken(error: Exception) -> Refused:
    """Return the refusal for a replica that failed to answer."""
    if isinstance(error, TimeoutError):
        return Refused(504, "answer-timeout", "The replica was silent for too long.")
    if isinstance(error, InvalidAnswer):
        return Refused(502, "replica-broken", f"The answer of the replica cannot be passed on: {error.fault}.")
    return Refused(502, "replica-broken", "The replica broke off before it had answered. Try again.")


def stopped() -> Refused:
    """Return the refusal for an endpoint that its owner stopped."""
    return Refused(503, "endpoint-stopped", "The endpoint is stopped. Its owner can start it.")


def not_known() -> Refused:
    """Return the refusal for an unknown host name while the database is away."""
    message = "No endpoint is known at this address, and the portal's database, which knows new ones, does not answer."
    return Refused(503, "endpoint-not-known", message, retry_after=10)


def no_wake(*, can_sleep: bool) -> Refused:
    """Return the refusal for an endpoint without replicas while the database is away. ``can_sleep``: whether the
    endpoint scales to zero.
    """
    if can_sleep:
        message = "The endpoint sleeps, and the portal's database, which could wake it, does not answer."
        return Refused(503, "cannot-wake", message, retry_after=10)
    message = "No replica of the endpoint was ready when the portal's database, which knows of new ones, went away."
    return Refused(503, "no-replica", message, retry_after=10)


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
