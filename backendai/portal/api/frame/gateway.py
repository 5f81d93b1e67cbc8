"""Reads a kernel's output from the gateway of its agent."""

from __future__ import annotations

from backendai.domain.compute.models import Kernel
from backendai.gates.gateways.asking import NodeUnreachable, ask
from backendai.gates.gateways.tickets import address_of

LARGEST_LOG = 32 * 2**20


def read_log(kernel: Kernel, *, tail: int | None, app: str = "") -> tuple[bytes, bool] | None:
    """Return the output of a kernel, or of an app in it; None if its agent does not have it.

    Also returns whether the output was cut at ``LARGEST_LOG`` bytes. Raises NodeUnreachable.
    """
    if kernel.agent is None:
        return None
    query: dict[str, str | int] = ({"tail": tail} if tail else {}) | ({"app": app} if app else {})
    address = address_of(kernel, "log")
    reply = ask(address, largest=LARGEST_LOG, connect=3.0, read=15.0, query=query)
    if reply.status == 404:
        return None
    if reply.status != 200:
        raise NodeUnreachable(f"{address.url} answered {reply.status}: {reply.content[:200]!r}")
    return reply.content, reply.is_cut
