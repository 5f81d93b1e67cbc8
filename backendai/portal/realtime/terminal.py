"""The terminal of a kernel: relays bytes between the browser and the agent's gateway."""

from __future__ import annotations

import asyncio

import aiohttp
from channels.db import database_sync_to_async

from backendai.base.core.messages import Message
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.tickets import Address, address_of
from backendai.portal.realtime.relay import ENDED, LOST, RelayConsumer
from backendai.portal.realtime.targets import REFUSED, Refusal, find_kernel, number_in

MOST_SHELLS = 8  # of a kernel: each is its own tmux session, or a shell of its own
KERNEL_GONE = 4001
RESTARTING = 1012
_PASSED_ON = frozenset({ENDED, KERNEL_GONE, REFUSED, RESTARTING})
_LARGEST_SIDE = 1000
_LARGEST_FRAME = 2**20  # an agent sends 64 KiB at once
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


class TerminalConsumer(RelayConsumer):
    """Relays a terminal: binary frames are bytes, text frames are JSON that passes unread.

    Close codes: 4000 shell ended, 4001 kernel gone, 4003 refused, 4004 not running, 1012 agent restarts, 1011 agent
    lost or terminal not opened.
    """

    token_scope = Scope.SESSIONS
    _gateway: aiohttp.ClientWebSocketResponse

    async def open(self) -> None:
        """Connect to the gateway, and accept the socket once the gateway has answered."""
        kernel_id = self.query.get("kernel")
        kernel = await database_sync_to_async(find_kernel)(self.credentials, self.session_id, kernel_id, "terminal")
        await self.take_places()
        self._gateway = await self._dial(address_of(kernel, "terminal"))
        await self.accept()
        meter.touch(self.session_id)
        self.start_pump(self._pass_output())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Send one frame to the gateway. If the gateway is gone, the pump closes the socket, not this method."""
        if self._pump is None:
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
            "name": "web" if shell == 1 else f"web-{shell}",
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


def _ending(code: int | None, frame: aiohttp.WSMessage) -> tuple[int, str]:
    reason = frame.extra if frame.type is aiohttp.WSMsgType.CLOSE and isinstance(frame.extra, str) else ""
    if code in _PASSED_ON:
        return int(code or LOST), reason
    return LOST, reason or Message("The connection to the agent was lost.")
