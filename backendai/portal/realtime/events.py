"""Sends the changes of sessions and background jobs to browsers.

A lost event only delays the page, which loads its state again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Hashable
from typing import Any

from channels.db import database_sync_to_async
from redis.exceptions import RedisError

from backendai.base.core.messages import Message
from backendai.base.wire.browser import EVERYTHING, group_of
from backendai.domain.accounts.models import User
from backendai.portal.realtime.audiences import Listener, Missed, audiences
from backendai.portal.realtime.credentials import user_of
from backendai.portal.realtime.guarded import GuardedConsumer
from backendai.portal.realtime.places import MOST_EVENTS
from backendai.portal.realtime.targets import signed_in

logger = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013


class EventsConsumer(GuardedConsumer):
    """Sends the user's events as JSON: first ``{"type": "hello"}``.

    Then ``{"type": "session", "id", "status", "version", "own"}`` for each change of an own session, and ``{"type":
    "job", "id", "kind", "status"}`` for own background jobs. Superadmins get everybody's, with ``own`` false. If the
    channel layer is lost or the browser reads too slowly, the socket closes with 1013.
    """

    channel_layer_alias = None  # the audience has one for all of them

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._listener: Listener | None = None
        self._teller: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one socket. If the channel layer is unreachable, it closes, and the browser reconnects."""
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, OSError) as error:
            logger.warning("no events for a browser: %s", error)
            with contextlib.suppress(OSError, RuntimeError):
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    async def open(self) -> None:
        """Join the audience of the user's events."""
        group, user_id = await database_sync_to_async(self._find_group)()
        self.places.take(("events", user_id), MOST_EVENTS, Message("pages"))
        self._listener = Listener(group, user_id)
        await audiences().join(self._listener)
        await self.accept()
        await self.send(text_data='{"type": "hello"}')
        self._teller = asyncio.create_task(self._tell(self._listener))

    def may_stay(self) -> bool:
        """Return whether the user may still sign in and belongs to the same audience."""
        user = user_of(self.credentials)
        return user is not None and self._listener is not None and self._listener.group == _group_of(user)

    def question(self) -> Hashable:
        """Return the credentials and the audience: pages that share both share the check."""
        return self.credentials, self._listener and self._listener.group

    async def hang_up(self) -> None:
        """Stop sending, and leave the audience."""
        if self._teller:
            self._teller.cancel()
        if self._listener:
            await audiences().leave(self._listener)

    def _find_group(self) -> tuple[str, str]:
        user = signed_in(self.credentials)
        return _group_of(user), str(user.pk)

    async def _tell(self, listener: Listener) -> None:
        """Send the audience's messages until the browser leaves or messages were missed."""
        with contextlib.suppress(OSError, RuntimeError):
            try:
                while True:
                    for text in await listener.take():
                        await self.send(text_data=text)
            except Missed:
                await self.close(TRY_AGAIN_LATER, "Events rest; look again later.")


def _group_of(user: User) -> str:
    return EVERYTHING if user.is_superadmin else group_of(user.pk)
