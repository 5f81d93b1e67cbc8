"""Runs of code over a websocket: sends their events, and receives orders."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from channels.db import database_sync_to_async
from django.utils import timezone

from backendai.base.core.errors import PlatformError, UserError
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.services.launching.sharing import note_guest
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.gateways.guests import AUDITED_EVERY, GuestTarget, ask, find_target, followed, note_use, target_of
from backendai.portal.realtime.relay import ENDED, RelayConsumer
from backendai.portal.realtime.targets import NOT_RUNNING, Refusal, find_kernel, signed_in

_RETRY_SECONDS = 1.0
_LARGEST_FRAME = 4 * 2**20
_MOST_ORDERS = 64
_ORDERS: dict[str, tuple[str, ...]] = {
    "run": ("run_id", "mode", "code", "context", "language", "options", "timeout"),
    "input": ("run_id", "text"),
    "interrupt": ("run_id",),
    "withdraw": ("run_id",),
    "complete": ("code", "cursor", "context", "language"),
    "restart": ("context",),
    "delete-context": ("context", "runs"),
    "languages": (),
    "runs": ("before", "limit"),
    "read": ("run_id", "after"),
    "code": ("run_id",),
}


class RunsConsumer(RelayConsumer):
    """Sends the events of runs and receives orders, as JSON frames.

    Up: ``{"type": "attach", "after": {run id: offset}}`` starts the events after these offsets. The other types are
    orders, with ``id`` for their answer. Down: ``{"type": "ready"}``, ``{"type": "run", …}`` (state, items, offset),
    ``{"type": "answer", "id", …}``, and ``{"type": "connection", "is_up"}`` about the connection to the agent. Close
    codes: 4000 session ended, 4003 refused, 4004 not running or not interactive. Runs continue when the socket closes.
    """

    token_scope = Scope.SESSIONS
    _target: GuestTarget

    async def open(self) -> None:
        """Find the kernel, and accept the socket."""
        self._target = await database_sync_to_async(self._find)()
        await self.take_places()
        self._orders: set[asyncio.Task[None]] = set()
        self._noted_at = -AUDITED_EVERY
        await self.accept()
        await self._send({"type": "ready"})

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Receive one order, and start it next to the others."""
        try:
            order = json.loads(text_data or "")
            kind = str(order["type"])
            told = dict(order.get("after") or {}) if kind == "attach" else {}  # an offset in other orders
            after = {str(key): int(value) for key, value in told.items()}
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if kind == "attach" and self._pump is None:
            self.start_pump(self._tell(after))
        elif kind not in _ORDERS:
            return
        elif len(text_data or "") > _LARGEST_FRAME:
            await self._refuse(order, "code-too-large", "The code is too large: 1 MiB at most.")
        elif len(self._orders) >= _MOST_ORDERS:
            text = f"{_MOST_ORDERS} requests of this page wait for an answer: try again."
            await self._refuse(order, "too-many-orders", text, is_passing=True)
        else:
            task = asyncio.create_task(self._obey(kind, order))
            self._orders.add(task)
            task.add_done_callback(self._orders.discard)

    async def _refuse(self, order: dict[str, Any], code: str, message: str, **more: bool) -> None:
        await self._send({"type": "answer", "id": order.get("id"), "error": {"code": code, "message": message, **more}})

    async def hang_up(self) -> None:
        """Cancel the open orders, and close the connections. Runs continue."""
        for task in list(getattr(self, "_orders", ())):
            task.cancel()
        await super().hang_up()

    def _find(self) -> GuestTarget:
        kernel = find_kernel(self.credentials, self.session_id, None, "execute")
        note_guest(signed_in(self.credentials), kernel.session, "files and code", now=timezone.now())
        try:
            return target_of(kernel)
        except UserError as error:
            raise Refusal(NOT_RUNNING, error.message) from error

    async def _obey(self, kind: str, order: dict[str, Any]) -> None:
        question = {name: order[name] for name in _ORDERS[kind] if name in order}
        try:
            if kind == "run" and time.monotonic() - self._noted_at >= AUDITED_EVERY:
                self._noted_at = time.monotonic()
                await database_sync_to_async(self._note)()
            answer = await ask(self._target, {"op": kind, **question})
        except UserError as error:
            answer = {"error": {"code": error.code, "message": error.message}}
        except PlatformError as error:
            text = "The agent of this session does not answer: try again."
            answer = {"error": {"code": error.code, "message": text, "is_passing": True}}
        await self._send({"type": "answer", "id": order.get("id"), **answer})

    def _note(self) -> None:
        by = self.credentials.bearer or self.credentials.login
        note_use(signed_in(self.credentials), self._target, by=by[:64])

    async def _tell(self, after: dict[str, int]) -> tuple[int, str]:
        """Send the events of runs until the session ends.

        Returns the close code and reason. After a loss of agent or guest it continues at the last offset.
        """
        while True:
            try:
                async with followed(self._target, after) as happenings:
                    await self._send({"type": "connection", "is_up": True})
                    async for told in happenings:
                        after[str(told.get("run_id"))] = int(told.get("offset") or 0)
                        meter.touch(self.session_id)
                        await self._send({"type": "run", **told})
            except (UserError, PlatformError, ValueError, TypeError):
                pass
            await self._send({"type": "connection", "is_up": False})
            await asyncio.sleep(_RETRY_SECONDS)
            try:
                self._target = await database_sync_to_async(self._look_again)()
            except (Refusal, UserError):
                return ENDED, "The session has ended."

    def _look_again(self) -> GuestTarget:
        return find_target(signed_in(self.credentials), self.session_id)

    async def _send(self, message: dict[str, Any]) -> None:
        await self.base_send({"type": "websocket.send", "text": json.dumps(message)})
