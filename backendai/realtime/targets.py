"""Which kernel a websocket is about, and whether the one who asks may reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from backendai.accounts.models import User
from backendai.accounts.scopes import Scope
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.status import Status
from backendai.realtime.credentials import Credentials, user_of

REFUSED = 4003
NOT_RUNNING = 4004


class Refusal(Exception):
    """The socket cannot be served: the close code and a sentence for the person."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class NotLetIn(Refusal):
    """Nobody is signed in, or the session is not visible: the handshake itself is refused, with HTTP 403."""


def signed_in(credentials: Credentials) -> User:
    """Return the user; NotLetIn when nobody is signed in."""
    user = user_of(credentials)
    if user is None and credentials.bearer is not None and credentials.needed != Scope.READ:
        raise NotLetIn(REFUSED, f"The token is not valid, or lacks the scope {credentials.needed}.")
    if user is None:
        raise NotLetIn(REFUSED, "Sign in again.")
    return user


def holder_of(credentials: Credentials) -> str:
    """Return whose websockets are counted together; NotLetIn when nobody is signed in."""
    return str(signed_in(credentials).pk)


def find_kernel(credentials: Credentials, session_id: UUID, kernel_id: str | None) -> Kernel:
    """Return the named kernel (the main one when None) with its agent and session; a Refusal when the one who asks
    may not see it (NotLetIn: not the session either). A missing and a foreign one look the same."""
    session = ComputeSession.objects.visible_to(signed_in(credentials)).filter(pk=session_id).first()
    if session is None:
        raise NotLetIn(REFUSED, "There is no such session.")
    kernels = session.kernels.select_related("agent")
    wanted = kernels.filter(pk=_uuid(kernel_id)) if kernel_id else kernels.filter(rank=0)
    kernel: Kernel | None = wanted.first()
    if kernel is None:
        raise Refusal(REFUSED, "There is no such kernel.")
    return kernel


def find_running_kernel(credentials: Credentials, session_id: UUID, kernel_id: str | None) -> Kernel:
    """The same, and both the session and the kernel are RUNNING."""
    kernel = find_kernel(credentials, session_id, kernel_id)
    if kernel.status != Status.RUNNING or kernel.session.status != Status.RUNNING or kernel.agent is None:
        raise Refusal(NOT_RUNNING, "The session is not running.")
    return kernel


def may_see(credentials: Credentials, session_id: UUID) -> bool:
    """Return whether whoever opened the socket is still let in and may still see the session."""
    user = user_of(credentials)
    return user is not None and ComputeSession.objects.visible_to(user).filter(pk=session_id).exists()


def query_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the query parameters of the handshake; of one given twice the last."""
    return {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def number_in(query: Mapping[str, str], name: str, *, most: int) -> int | None:
    """Return a whole number from 1 to ``most``; None when it is not there or no such number."""
    text = query.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) else None


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Refusal(REFUSED, "There is no such kernel.") from None
