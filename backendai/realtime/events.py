"""Tells a browser which sessions and background jobs changed. Lost events cost freshness, nothing else: the page looks
again by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

from channels.db import database_sync_to_async
from redis.exceptions import RedisError

from backendai.realtime.credentials import user_of
from backendai.realtime.guarded import GuardedConsumer
from backendai.realtime.targets import signed_in
from backendai.wire.browser import EVERYTHING, group_of

logger = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
TRY_AGAIN_LATER = 1013


class EventsConsumer(GuardedConsumer):
    """Sends ``{"type": "hello"}``, then ``{"type": "session", "id", "status", "version", "own"}`` for every change of
    one's own sessions and ``{"type": "job", "id", "kind", "status"}`` of one's own background jobs; superadmins get
    everybody's, where ``own`` is false. When the channel layer dies the socket closes with 1013."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group = ""
        self._user_id = ""
        self._prober: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one socket; without the layer it closes, and the browser comes back."""
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, OSError) as error:
            logger.warning("no events for a browser: %s", error)
            with contextlib.suppress(OSError, RuntimeError):
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    async def open(self) -> None:
        """Join the group of the user's events."""
        self._group = await database_sync_to_async(self._find_group)()
        await self.channel_layer.group_add(self._group, self.channel_name)
        await self.accept()
        await self.send(text_data='{"type": "hello"}')
        self._prober = asyncio.create_task(self._probe())

    async def session_changed(self, event: dict[str, Any]) -> None:
        """Pass on one change."""
        told = {name: event[name] for name in ("id", "status", "version")}
        news = {"type": "session", **told, "own": event["owner_id"] == self._user_id}
        await self.send(text_data=json.dumps(news))

    async def sessions_changed(self, message: dict[str, Any]) -> None:
        """Pass on many changes."""
        for event in message["events"]:
            await self.session_changed(event)

    async def job_changed(self, event: dict[str, Any]) -> None:
        """Pass on the change of a background job."""
        news = {"type": "job", "id": event["id"], "kind": event["kind"], "status": event["status"]}
        await self.send(text_data=json.dumps(news))

    async def layer_probed(self, _: dict[str, Any]) -> None:
        """Take our own probe: that it came is all there is to know."""

    def may_stay(self) -> bool:
        """Return whether the user is still let in, with the same reach."""
        user = user_of(self.credentials)
        return user is not None and self._group == (EVERYTHING if user.is_superadmin else group_of(user.pk))

    async def hang_up(self) -> None:
        """Leave the group."""
        if self._prober:
            self._prober.cancel()
        if self._group:
            with contextlib.suppress(RedisError, OSError):
                await self.channel_layer.group_discard(self._group, self.channel_name)

    def _find_group(self) -> str:
        user = signed_in(self.credentials)
        self._user_id = str(user.pk)
        return EVERYTHING if user.is_superadmin else group_of(user.pk)

    async def _probe(self) -> None:
        """Close the socket when the layer is gone: it would retry for ever in silence while the page looks live."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.channel_layer.send(self.channel_name, {"type": "layer.probed"})
            except (RedisError, OSError) as error:
                logger.warning("events socket closed: %s", error)
                with contextlib.suppress(OSError, RuntimeError):
                    await self.close(TRY_AGAIN_LATER, "Events rest; look again later.")
                return
