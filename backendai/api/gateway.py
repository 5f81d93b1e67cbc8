"""Asking a node's gateway for a kernel's output."""

from __future__ import annotations

from urllib.parse import urlencode

import urllib3

from backendai.compute.models import Kernel
from backendai.compute.services.gateway import address_of
from backendai.core.errors import PlatformError

LARGEST_LOG = 32 * 2**20
_pool = urllib3.PoolManager(
    num_pools=64, maxsize=4, timeout=urllib3.Timeout(connect=3.0, read=15.0), retries=urllib3.Retry(0, redirect=False)
)


class NodeUnreachable(PlatformError):
    """The node's gateway gave no usable answer."""

    code = "node-unreachable"


def read_log(kernel: Kernel, *, tail: int | None, app: str = "") -> tuple[bytes, bool] | None:
    """Return what the kernel, or this app in it, has written so far and whether it was cut at ``LARGEST_LOG`` bytes;
    None when its node does not have it. Raises NodeUnreachable."""
    if kernel.agent is None:
        return None
    address = address_of(kernel, "log")
    query = urlencode(({"tail": tail} if tail else {}) | ({"app": app} if app else {}))
    url = f"{address.url}?{query}" if query else address.url
    try:
        with _pool.request("GET", url, headers=address.headers, preload_content=False) as answer:
            content = answer.read(LARGEST_LOG + 1)
            answer.drain_conn() if len(content) <= LARGEST_LOG else answer.close()
    except urllib3.exceptions.HTTPError as error:
        raise NodeUnreachable(f"no log from {url}: {error}") from error
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise NodeUnreachable(f"{url} answered {answer.status}: {content[:200]!r}")
    return content[:LARGEST_LOG], len(content) > LARGEST_LOG
