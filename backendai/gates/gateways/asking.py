"""Short requests to a gateway from pages and REST. A thread waits for the whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import urllib3

from backendai.base.core.errors import PlatformError
from backendai.gates.gateways.open_questions import waiting_thread
from backendai.gates.gateways.tickets import Address

# No redirects: a gateway that sends us elsewhere would read the portal's own network through us.
_pool = urllib3.PoolManager(num_pools=64, maxsize=4, retries=urllib3.Retry(0, redirect=False))


class NodeUnreachable(PlatformError):
    """The agent's gateway gave no usable answer."""

    code = "node-unreachable"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a gateway. ``is_cut``: it was longer than the limit."""

    status: int
    content: bytes
    is_cut: bool


def ask(
    address: Address,
    *,
    largest: int,
    connect: float,
    read: float,
    query: Mapping[str, str | int] | None = None,
    method: str = "GET",
) -> Reply:
    """Return the answer, at most ``largest`` bytes. Waits at most ``connect`` and ``read`` seconds for each step.
    Raises NodeUnreachable, and Overloaded if too many threads wait already."""
    url = f"{address.url}?{urlencode(query)}" if query else address.url
    timeout = urllib3.Timeout(connect=connect, read=read)
    try:
        with waiting_thread(address.url.rpartition("/")[0]):
            answer = _pool.request(method, url, headers=address.headers, preload_content=False, timeout=timeout)
            with answer:
                content = answer.read(largest)
                is_cut = bool(answer.read(1))  # apart: a cut would be a second copy of up to 32 MiB
                answer.close() if is_cut else answer.drain_conn()
    except urllib3.exceptions.HTTPError as error:
        raise NodeUnreachable("no answer from {address}: {error}", address=url, error=str(error)) from error
    return Reply(answer.status, content, is_cut)
