"""Finds the kernel of a websocket, and checks whether the user may reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.base.wire.tickets import Purpose
from backendai.domain.accounts.models import User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.status import ShareRight
from backendai.gates.gateways.reach import reach, still_visible
from backendai.gates.gateways.targets import Denied
from backendai.portal.realtime.credentials import Credentials, user_of

REFUSED = 4003
NOT_RUNNING = 4004


class Refusal(Exception):
    """The socket cannot be served: has the close code and a sentence for the user."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class ConnectionForbidden(Refusal):
    """Nobody is signed in, or the session is not visible. The handshake is refused with HTTP 403."""


def signed_in(credentials: Credentials) -> User:
    """Return the user. Raises NotLetIn if nobody is signed in."""
    user = user_of(credentials)
    if user is None and credentials.bearer is not None and credentials.needed != Scope.READ:
        raise ConnectionForbidden(
            REFUSED, Message("The token is not valid, or lacks the scope {scope}.", scope=str(credentials.needed))
        )
    if user is None:
        raise ConnectionForbidden(REFUSED, Message("Sign in again."))
    return user


def holder_of(credentials: Credentials) -> str:
    """Return the id of the user, under which websockets are counted. Raises NotLetIn if nobody is signed in."""
    return str(signed_in(credentials).pk)


def find_kernel(
    credentials: Credentials,
    session_id: UUID,
    kernel_id: str | None,
    purpose: Purpose = "log",
    *,
    is_read_only: bool = False,
) -> Kernel:
    """Return the named kernel (None: the main one) with its agent and session. ``is_read_only``: as for ``reach``.

    Raises Refusal if the user may not reach it for this purpose, or NotLetIn if the session is not visible either.
    """
    user = signed_in(credentials)
    try:
        wanted = _uuid(kernel_id) if kernel_id else None
        return reach(user, purpose, session_id=session_id, kernel_id=wanted, is_read_only=is_read_only)
    except Denied as error:
        kind = ConnectionForbidden if error.code == "no-session" else Refusal
        raise kind(NOT_RUNNING if error.code == "not-running" else REFUSED, error.message) from None


def may_see(credentials: Credentials, session_id: UUID, shared: ShareRight) -> bool:
    """Return whether the user of the socket may still sign in and see the session, also by a share of this right."""
    return still_visible(user_of(credentials), session_id, shared)


def query_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the query parameters of the handshake; of repeated ones the last counts."""
    return {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def number_in(query: Mapping[str, str], name: str, *, most: int) -> int | None:
    """Return the parameter as a whole number from 1 to ``most``; None if it is missing or invalid.

    Larger numbers become ``most``.
    """
    text = query.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) else None


def _uuid(text: str) -> UUID:
    """Return the id; for an invalid text an id that no kernel has."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)
