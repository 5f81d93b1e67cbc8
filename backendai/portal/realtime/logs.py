"""Sends the output of a kernel: live while it runs, from the stored log afterwards."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from uuid import UUID

import aiohttp
from channels.db import database_sync_to_async
from django.utils import timezone

from backendai.base.core.log_lines import last_lines
from backendai.base.core.messages import Message
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.apps.of_session import app_logs_of
from backendai.domain.compute.services.records.log_ends import EMPTY, why_no_logs
from backendai.domain.compute.services.records.logs import saved_log
from backendai.domain.compute.status import TERMINAL, ShareRight, Status
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.tickets import Address, address_of
from backendai.portal.realtime.credentials import Credentials
from backendai.portal.realtime.relay import ENDED, LOST, RelayConsumer
from backendai.portal.realtime.targets import NOT_RUNNING, Refusal, find_kernel, number_in

_MOST_LINES = 1_000_000
_PIECE = 64 * 1024
_ON_NODE = frozenset({Status.CREATING, Status.RUNNING, Status.TERMINATING})


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The stored output of an ended kernel."""

    content: bytes
    truncated: bool


class LogConsumer(RelayConsumer):
    """Sends the output of a kernel as binary frames. For that of an app the right to use the session is needed.

    ``{"type": "truncated"}`` comes first if the beginning was not kept. Close codes: 4000 end of the output, 4003
    refused, 4004 no output yet, 1011 agent lost.
    """

    async def open(self) -> None:
        """Find the output, at the agent or in the stored log, and start to send it."""
        wanted = self.credentials, self.session_id, self.query.get("kernel")
        if app := self.query.get("app"):
            await self._open_app(app)
            return
        self.shared = ShareRight.VIEW
        found = await database_sync_to_async(_address_or_log)(*wanted)
        await self.take_places()
        response = await self._dial(found) if isinstance(found, Address) else None
        if isinstance(found, Address) and response is None:
            found = await database_sync_to_async(_kept)(*wanted)
        await self.accept()
        if isinstance(found, StoredLog):
            self.start_pump(self._send_kept(found))
        elif response is not None:
            self.start_pump(self._follow(response))

    async def _open_app(self, app: str) -> None:
        """Send the current output of an app once, without following it."""
        wanted = self.credentials, self.session_id, self.query.get("kernel")
        response = await self._dial(await database_sync_to_async(_address_for)(*wanted, app), app=app)
        if response is None:
            raise Refusal(NOT_RUNNING, Message("This app has no output."))
        await self.accept()
        self.start_pump(self._follow(response))

    async def _dial(self, address: Address, *, app: str = "") -> aiohttp.ClientResponse | None:
        """Return the gateway's answer, or None if the agent no longer has the kernel."""
        query = {"app": app} if app else {"follow": "1"}
        if tail := number_in(self.query, "tail", most=_MOST_LINES):
            query["tail"] = str(tail)
        client = await self.dial()
        opening = client.get(address.url, params=query, headers=address.headers)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                response = await self.keep(opening)
        except (aiohttp.ClientError, OSError) as error:
            raise Refusal(LOST, Message("The agent does not answer.")) from error
        if response.status == 404:
            return None
        if response.status != 200:
            raise Refusal(LOST, Message("The agent cannot read the output now."))
        return response

    async def _follow(self, response: aiohttp.ClientResponse) -> tuple[int, str]:
        async for piece in response.content.iter_any():
            await self.send(bytes_data=piece)
        return ENDED, Message("The output has ended.")

    async def _send_kept(self, log: StoredLog) -> tuple[int, str]:
        content = log.content
        if tail := number_in(self.query, "tail", most=_MOST_LINES):
            content = last_lines(content, tail)
        if log.truncated:
            await self.send(text_data=json.dumps({"type": "truncated"}))
        for start in range(0, len(content), _PIECE):
            await self.send(bytes_data=content[start : start + _PIECE])
        return ENDED, Message("The output has ended.")


def _address_or_log(credentials: Credentials, session_id: UUID, kernel_id: str | None) -> Address | StoredLog:
    kernel = find_kernel(credentials, session_id, kernel_id)
    if kernel.status in _ON_NODE and kernel.agent is not None:
        return address_of(kernel, "log")
    return _kept_log(kernel)


def _address_for(credentials: Credentials, session_id: UUID, kernel_id: str | None, app: str) -> Address:
    kernel = find_kernel(credentials, session_id, kernel_id, "app")
    if kernel.rank != 0 or app not in dict(app_logs_of(kernel.session, kernel)):
        raise Refusal(NOT_RUNNING, Message("This app has no output."))
    return address_of(kernel, "log")


def _kept(credentials: Credentials, session_id: UUID, kernel_id: str | None) -> StoredLog:
    return _kept_log(find_kernel(credentials, session_id, kernel_id))


def _kept_log(kernel: Kernel) -> StoredLog:
    if kernel.status not in TERMINAL | {Status.TERMINATING}:
        raise Refusal(NOT_RUNNING, Message("The kernel has not started yet."))
    kept, why = saved_log(kernel), Message("The output of this kernel was not kept.")
    if kept is None and kernel.status in TERMINAL:
        why = why_no_logs([kernel], timezone.now())[kernel.pk]
        kept = (b"", False) if why == EMPTY else None
    if kept is None:
        raise Refusal(NOT_RUNNING, why)
    return StoredLog(*kept)
