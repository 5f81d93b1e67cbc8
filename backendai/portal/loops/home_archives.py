"""Receives the home folder of a running kernel as a tar stream from its agent's gateway."""

from __future__ import annotations

from collections.abc import Iterator

import urllib3

from backendai.base.core.errors import UserError
from backendai.domain.compute.models.sessions import Kernel
from backendai.domain.storage.file_server import StorageSilent
from backendai.domain.storage.file_streams import PIECE
from backendai.gates.gateways.tickets import address_of

_PATIENCE = urllib3.Timeout(connect=5.0, read=120.0)
_pool = urllib3.PoolManager(num_pools=16, maxsize=2, retries=urllib3.Retry(0, redirect=False), timeout=_PATIENCE)


class HomeGone(UserError):
    """The agent has no home folder of this kernel."""

    code = "home-gone"


def receive_home(kernel: Kernel, generation: int) -> Iterator[bytes]:
    """Yield the home folder of this generation of a kernel as pieces of a tar archive. Raises HomeGone, and
    StorageSilent if the stream breaks off."""
    if kernel.generation != generation or kernel.agent is None:
        raise HomeGone("The session ended before its home was copied.")
    address = address_of(kernel, "files")
    try:
        answer = _pool.request("GET", address.url, headers=address.headers, preload_content=False)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Agent {agent} is not reachable.", agent=kernel.agent.name) from error
    try:
        if answer.status == 404:
            raise HomeGone(f"Agent {kernel.agent.name} does not send the home folder: the session has ended there, or "
                           "the agent is older than the portal.")  # fmt: skip
        if answer.status != 200:
            raise StorageSilent("Agent {agent} answered {answer}.", agent=kernel.agent.name, answer=answer.status)
        yield from answer.stream(PIECE)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Agent {agent} interrupted the copy.", agent=kernel.agent.name) from error
    finally:
        answer.close()
