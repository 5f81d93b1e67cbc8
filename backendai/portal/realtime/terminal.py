"""The terminal of a kernel: relays bytes between the browser and the agent's gateway."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import aiohttp
from channels.db import database_sync_to_async
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.launching.sharing import note_guest
from backendai.domain.compute.services.records.traffic import meter
from backendai.domain.compute.status import ShareRight
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.tickets import Address, address_of
from backendai.portal.realtime.relay import ENDED, LOST, RelayConsumer
from backendai.portal.realtime.targets import (
    REFUSED,
    ConnectionForbidden,
    Refusal,
    find_kernel,
    number_in,
    signed_in,
)

MOST_SHELLS = 8  # of a kernel: each is its own tmux session, or a shell of its own
KERNEL_GONE = 4001
RESTARTING = 1012
_PASSED_ON = frozenset({ENDED, KERNEL_GONE, REFUSED, RESTARTING})
_LARGEST_SIDE = 1000
_LARGEST_FRAME = 2**20  # an agent sends 64 KiB at once
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_ACKNOWLEDGEMENT = re.compile(r'\s*\{\s*"type"\s*:\s*"ack"\s*,\s*"bytes"\s*:\s*\d{1,15}\s*\}\s*')


class TerminalConsumer(RelayConsumer):
    """Relays a terminal: binary frames are bytes, text frames are JSON that passes unread. Of people who may only view
    the session, nothing passes but the acknowledgements of what they have drawn.

    Close codes: 4000 shell ended, 4001 kernel gone, 4003 refused, 4004 not running, 1012 agent restarts, 1011 agent
    lost or terminal not opened.
    """

    token_scope = Scope.SESSIONS
    _gateway: aiohttp.ClientWebSocketResponse

    async def open(self) -> None:
        """Connect to the gateway, and accept the socket once the gateway has answered."""
        kernel, self.shared = await database_sync_to_async(self._find)()
        await self.take_places()
        self._gateway = await self._dial(address_of(kernel, "terminal"))
        await self.accept()
        if self._may_write:
            meter.touch(self.session_id)
        self.start_pump(self._pass_output())

    @property
    def _may_write(self) -> bool:
        return self.shared == ShareRight.USE

    def _find(self) -> tuple[Kernel, ShareRight]:
        """Return the kernel, and the right that the socket needs to stay: viewing, if the user may not do more."""
        find = partial(find_kernel, self.credentials, self.session_id, self.query.get("kernel"), "terminal")
        try:
            kernel, right = find(), ShareRight.USE
        except ConnectionForbidden:
            kernel, right = find(is_read_only=True), ShareRight.VIEW
        note_guest(signed_in(self.credentials), kernel.session, f"terminal: {right}", now=timezone.now())
        return kernel, right

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Send one frame to the gateway. If the gateway is gone, the pump closes the socket, not this method."""
        if self._pump is None or not (self._may_write or _is_acknowledgement(text_data)):
            return
        try:
            if bytes_data is not None:  # typed by somebody; text comes from an idle page too
                meter.touch(self.session_id)
                await self._gateway.send_bytes(bytes_data)
            elif text_data is not None:
                await self._gateway.send_str(text_data)
        except (aiohttp.ClientError, ConnectionError):
            return

    async def _dial(self, address: Address) -> aiohttp.ClientWebSocketResponse:
        shell = number_in(self.query, "shell", most=MOST_SHELLS) or 1
        query = {
            "name": ("" if self._may_write else "view-") + ("web" if shell == 1 else f"web-{shell}"),
            "rows": str(number_in(self.query, "rows", most=_LARGEST_SIDE) or 24),
            "cols": str(number_in(self.query, "cols", most=_LARGEST_SIDE) or 80),
            "ack": "0" if self.query.get("ack") == "0" else "1",
        }
        client = await self.dial()
        opening = client.ws_connect(
            address.url,
            params=query,
            headers=address.headers,
            heartbeat=_HEARTBEAT_SECONDS,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            compress=0,
            max_msg_size=_LARGEST_FRAME,
        )
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await self.keep(opening)
        except (aiohttp.ClientError, OSError) as error:
            raise Refusal(LOST, Message("The agent does not answer.")) from error

    async def _pass_output(self) -> tuple[int, str]:
        while True:
            frame = await self._gateway.receive()
            if frame.type is aiohttp.WSMsgType.BINARY:
                await self.base_send({"type": "websocket.send", "bytes": frame.data})
            elif frame.type is aiohttp.WSMsgType.TEXT:
                await self.base_send({"type": "websocket.send", "text": frame.data})
            else:
                return _ending(self._gateway.close_code, frame)


def _is_acknowledgement(text: str | None) -> bool:
    """Return whether a frame only reports what was drawn, without any other word."""
    return text is not None and _ACKNOWLEDGEMENT.fullmatch(text) is not None


def _ending(code: int | None, frame: aiohttp.WSMessage) -> tuple[int, str]:
    reason = frame.extra if frame.type is aiohttp.WSMsgType.CLOSE and isinstance(frame.extra, str) else ""
    if code in _PASSED_ON:
        return int(code or LOST), reason
    return LOST, reason or Message("The connection to the agent was lost.")
