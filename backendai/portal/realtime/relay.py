"""The base of terminals and logs: relays bytes between the browser and the agent's gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar
from uuid import UUID

import aiohttp
from channels.consumer import get_handler_name
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer

from backendai.base.core.messages import Message
from backendai.domain.compute.status import ShareRight
from backendai.gates.gateways.dialing import new_client
from backendai.portal.realtime.guarded import GuardedConsumer
from backendai.portal.realtime.places import MOST_OF_KERNEL, MOST_STREAMS
from backendai.portal.realtime.targets import holder_of, may_see, query_of

logger = logging.getLogger(__name__)

LOST = 1011
ENDED = 4000
_Opened = TypeVar("_Opened")


class RelayConsumer(GuardedConsumer):
    """Relays a kernel's bytes between gateway and browser.

    It awaits each send, so TCP's back-pressure applies. It needs no channel layer, so it survives an outage of Redis.
    ``shared``: the right of a share that keeps the socket open.
    """

    channel_layer_alias = None
    shared = ShareRight.USE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pump: asyncio.Task[None] | None = None
        self._open_ends = contextlib.AsyncExitStack()

    @property
    def session_id(self) -> UUID:
        """The id of the compute session in the address."""
        found: UUID = self.scope["url_route"]["kwargs"]["session_id"]
        return found

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of the handshake."""
        return query_of(self.scope)

    async def take_places(self) -> None:
        """Count this terminal or log for its person and its session. Raises Refusal if too many are open."""
        holder = await database_sync_to_async(holder_of)(self.credentials)
        self.places.take(("stream", holder), MOST_STREAMS, Message("terminals and logs of yours"))
        self.places.take(("session", self.session_id), MOST_OF_KERNEL, Message("terminals and logs of this session"))

    async def dial(self) -> aiohttp.ClientSession:
        """Return an HTTP client for the gateway, which closes with the socket."""
        return await self.keep(new_client())

    async def keep(self, opening: AbstractAsyncContextManager[_Opened]) -> _Opened:
        """Enter a context that ``hang_up`` closes; return its value."""
        return await self._open_ends.enter_async_context(opening)

    def start_pump(self, pump: Coroutine[Any, Any, tuple[int, str]]) -> None:
        """Run the pump next to the incoming frames. It returns the code and reason with which the socket closes."""
        self._pump = asyncio.create_task(self._run(pump))

    def may_stay(self) -> bool:
        """Return whether the user of the socket may still see the session."""
        return may_see(self.credentials, self.session_id, self.shared)

    async def hang_up(self) -> None:
        """Stop the pump, and close the connections to the gateway."""
        if self._pump:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        await self._open_ends.aclose()

    async def serve(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handle the events in sequence.

        The framework's own loop, made for two sources, costs a task and a thread hop per key.
        """
        self.scope, self.base_send = scope, send
        with contextlib.suppress(StopConsumer):
            while True:
                message = await receive()
                await getattr(self, get_handler_name(message))(message)

    async def _run(self, pump: Coroutine[Any, Any, tuple[int, str]]) -> None:
        try:
            code, reason = await pump
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.info("lost a gateway: %s", error)
            code, reason = LOST, Message("The connection to the agent was lost.")
        except (OSError, RuntimeError):  # the browser is gone
            return
        with contextlib.suppress(OSError, RuntimeError):
            await self.close(code, reason)
