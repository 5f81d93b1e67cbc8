"""Explains as text why a connection to a server failed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from backendai.base.core.messages import Message


def connection_failure_text(url: str, error: BaseException, seconds: float) -> str:
    """Return one sentence about a failed connection: host, port, cause, and the seconds spent."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Message(
        "{hostname} on port {port} cannot be reached: {error} (after {seconds} s).",
        hostname=parts.hostname,
        port=port,
        error=_cause(error),
        seconds=f"{seconds:.1f}",
    )


def _cause(error: BaseException) -> str:
    chain = list(_chain(error))
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return Message(
                "its certificate is not trusted, {verify_message}",
                verify_message=each.verify_message or Message("verification failed"),
            )
        if isinstance(each, ssl.SSLError):
            return Message(
                "the TLS connection failed, {value}",
                value=(each.reason or Message("no reason given")).replace("_", " ").lower(),
            )
        if isinstance(each, socket.gaierror):
            return Message("no address is found for the name")
        if isinstance(each, ConnectionRefusedError):
            return Message("the connection was refused: nothing listens there")
        if isinstance(each, TimeoutError):
            return Message("it did not answer in time")
    cause = next((each.strerror for each in chain if isinstance(each, OSError) and each.strerror), "")
    return cause.lower() if cause else Message("the connection was interrupted")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, the innermost first."""
    found: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        each = queue.pop()
        if isinstance(each, BaseException) and each not in found:
            found.append(each)
            queue += [getattr(each, "reason", None), each.__cause__, each.__context__, *each.args]
    yield from reversed(found)
