"""Receives the messages of each audience once for all open pages of this process.

An audience is a group of the channel layer: one person's pages, or those of all superadmins. A message is fetched,
decrypted and translated once, and then sent to each page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any
from weakref import WeakKeyDictionary

from channels.layers import get_channel_layer
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
MOST_UNSENT = 200
_PROBE = "layer.probed"


class Missed(Exception):
    """The page missed messages, so it must load its state again."""


class Listener:
    """An open page that receives the messages of its audience. ``user_id``: the id of the person whose page this is."""

    def __init__(self, group: str, user_id: str) -> None:
        self.group, self.user_id = group, user_id
        self._texts: list[str] = []
        self._has_missed = False
        self._more = asyncio.Event()

    def tell(self, text: str) -> None:
        """Queue a text for the page. If too many are unsent, the page is marked as having missed messages."""
        if len(self._texts) < MOST_UNSENT:
            self._texts.append(text)
            self._more.set()
        else:
            self.lose()

    def lose(self) -> None:
        """Mark the page as having missed messages."""
        self._has_missed = True
        self._more.set()

    async def take(self) -> list[str]:
        """Wait for texts and return them. Raises Missed if some were lost."""
        await self._more.wait()
        self._more.clear()
        if self._has_missed:
            raise Missed
        taken, self._texts = self._texts, []
        return taken


class Audiences:
    """All audiences with listeners in one event loop."""

    def __init__(self) -> None:
        self._ears: dict[str, _Subscription] = {}
        self._changing = asyncio.Lock()
        self._prober: asyncio.Task[None] | None = None

    async def join(self, listener: Listener) -> None:
        """Start sending the messages of its audience to this listener.

        Raises the channel layer's error if that is unreachable.
        """
        async with self._changing:
            ear = self._ears.get(listener.group)
            if ear is None or ear.is_deaf:
                ear = self._ears[listener.group] = await _opened(listener.group)
            ear.listeners.add(listener)
            if self._prober is None:
                self._prober = asyncio.create_task(self._probe())

    async def leave(self, listener: Listener) -> None:
        """Stop sending messages to this listener. Does nothing for an unknown one."""
        async with self._changing:
            ear = self._ears.get(listener.group)
            if ear is None:
                return
            ear.listeners.discard(listener)
            if not ear.listeners:
                del self._ears[listener.group]
                await ear.close()
            if not self._ears and self._prober:
                self._prober.cancel()
                self._prober = None

    async def _probe(self) -> None:
        """Mark all pages as having missed messages when the channel layer is gone.

        The layer itself would retry forever, and the pages would look live.
        """
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            ears = list(self._ears.values())
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    for ear in ears[:1]:
                        await ear.layer.send(ear.channel, {"type": _PROBE})
            except (RedisError, OSError) as error:
                logger.warning("events sockets closed: %s", error)
                for ear in ears:
                    ear.lose()


class _Subscription:
    """One channel in a group of the channel layer, and its listeners."""

    def __init__(self, layer: Any, group: str, channel: str) -> None:
        self.layer, self.group, self.channel = layer, group, channel
        self.listeners: set[Listener] = set()
        self.is_deaf = False
        self._listening = asyncio.create_task(self._hear())

    def lose(self) -> None:
        """Mark all listeners as having missed messages."""
        for listener in self.listeners:
            listener.lose()

    async def close(self) -> None:
        """Stop receiving, and leave the group."""
        if not self.is_deaf:
            self._listening.cancel()
        with contextlib.suppress(RedisError, OSError):
            await self.layer.group_discard(self.group, self.channel)

    async def _hear(self) -> None:
        try:
            while True:
                self._tell(await self.layer.receive(self.channel))
        except Exception as error:  # the layer's client raises many kinds; whatever it is, pages must not seem live
            logger.warning("events are not heard any more: %s", error)
            self.is_deaf = True
            self.lose()
            await self.close()

    def _tell(self, message: dict[str, Any]) -> None:
        if message["type"] == "job.changed":
            text = json.dumps({"type": "job", **{name: message[name] for name in ("id", "kind", "status")}})
            for listener in self.listeners:
                listener.tell(text)
        elif message["type"] != _PROBE:
            for event in message.get("events", [message]):
                self._tell_session(event)

    def _tell_session(self, event: dict[str, Any]) -> None:
        told = {"type": "session", **{name: event[name] for name in ("id", "status", "version")}}
        texts = {own: json.dumps(told | {"own": own}) for own in (True, False)}
        for listener in self.listeners:
            listener.tell(texts[event["owner_id"] == listener.user_id])


async def _opened(group: str) -> _Subscription:
    layer: Any = get_channel_layer()
    ear = _Subscription(layer, group, await layer.new_channel())
    try:
        await layer.group_add(group, ear.channel)
    except BaseException:
        await ear.close()
        raise
    return ear


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Audiences] = WeakKeyDictionary()


def audiences() -> Audiences:
    """Return the audiences of the running event loop."""
    return _by_loop.setdefault(asyncio.get_running_loop(), Audiences())
