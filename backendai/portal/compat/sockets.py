"""Websockets of the official client: a run of code, and the bytes of an app or of the SSH gate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.conf import settings
from django.urls import path, re_path
from django.utils import timezone

from backendai.base.core.errors import PlatformError, UserError
from backendai.base.core.messages import Message
from backendai.base.process.listeners import reached_at
from backendai.domain.accounts.models import KeyPair
from backendai.domain.accounts.sign_in.signatures import SignatureRefused, Signed, signer_of
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import apps_of, main_kernel, settings_of
from backendai.gates.gateways.dialing import new_client
from backendai.gates.gateways.guests import GuestTarget, ask, find_target, note_use
from backendai.gates.gateways.nodes import look
from backendai.gates.gateways.reach import reach
from backendai.gates.gateways.targets import Denied, Target
from backendai.gates.gateways.tunnel import NoTunnel, open_tunnel
from backendai.portal.api.sessions.execute import shape_of
from backendai.portal.compat.frame import PREFIX, check_way
from backendai.portal.compat.launching import SSHD, name_of
from backendai.portal.compat.names import named_session
from backendai.portal.realtime.credentials import Credentials, headers_of
from backendai.portal.realtime.relay import ENDED, RelayConsumer
from backendai.portal.realtime.routing import nowhere
from backendai.portal.realtime.targets import NOT_RUNNING, REFUSED, ConnectionForbidden, Refusal, signed_in

LARGEST_ORDER, LONGEST_INPUT = 4 * 2**20, 64 * 1024
_START_SECONDS, _PIECE = 120.0, 64 * 1024
_TAKE = {"op": "take", "wait": 2.0}  # what is new of a run, once there is something, or after so many seconds


class SignedConsumer(RelayConsumer):
    """A websocket whose handshake is signed, and which closes when its key pair or session is lost."""

    async def open(self) -> None:
        """Verify the signature, and begin. Raises ConnectionForbidden, or Refusal with a sentence."""
        try:
            session = await database_sync_to_async(self._find)()
            await self.take_places()
            await self.begin(session)
        except (Denied, NoTunnel) as error:
            raise Refusal(NOT_RUNNING, error.message) from error
        except UserError as error:
            raise Refusal(REFUSED, error.message) from error

    async def begin(self, session: ComputeSession) -> None:
        """Accept the socket, and start to serve it."""
        raise NotImplementedError

    def _find(self) -> ComputeSession:
        try:
            pair = signer_of_handshake(self.scope)
        except SignatureRefused as error:
            raise ConnectionForbidden(REFUSED, error.message) from error
        self.credentials = Credentials(None, "", key_pair=pair.pk)
        parts = self.scope["url_route"]["kwargs"]
        try:
            session = named_session(pair.user, parts["name"])
        except UserError as error:
            raise ConnectionForbidden(REFUSED, error.message) from error
        parts["session_id"] = session.pk
        return session


class ExecuteConsumer(SignedConsumer):
    """One run of code: the first frame is the order, each answer has what is new, until ``finished``."""

    _target: GuestTarget

    async def begin(self, session: ComputeSession) -> None:
        self._target = await database_sync_to_async(self._target_of)(session)
        self._run_id, self._inputs = uuid4().hex, asyncio.Queue[str](1)
        await self.accept()

    def _target_of(self, session: ComputeSession) -> GuestTarget:
        user = signed_in(self.credentials)
        target = find_target(user, session.pk)
        note_use(user, target, by=self.credentials.key_pair)
        return target

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Take the order, or an answer to ``input``. Others are dropped."""
        text = text_data or ""
        if self._pump is None and len(text) <= LARGEST_ORDER:
            self.start_pump(self._execute(_order_in(text)))
        elif self._pump is None:
            await self.close(REFUSED, Message("The code is too large: 1 MiB at most."))
        elif not self._inputs.full() and len(text) <= LONGEST_INPUT:
            self._inputs.put_nowait(text)

    async def _execute(self, order: Mapping[str, Any]) -> tuple[int, str]:
        run, echo = {"run_id": self._run_id}, ""
        while True:
            try:
                if order["op"] == "input":
                    await ask(self._target, {**order, **run})
                    order = _TAKE
                told = shape_of(await ask(self._target, {**order, **run}), echo)
            except (UserError, PlatformError) as error:
                told = {"status": "finished", "exitCode": 1, "options": None, "files": []}
                told["console"] = [["stderr", f"{error}\n"]]
            if told["console"] or told["status"] != "continued":
                await self.send(text_data=json.dumps(told))
            if told["status"] == "finished":
                return 1000, ""
            order, echo = _TAKE, ""
            if told["status"] == "waiting-input":
                order = {"op": "input", "text": await self._inputs.get()}
                echo = f"{told['options']['prompt']}{order['text']}\n"


class TcpProxyConsumer(SignedConsumer):
    """The bytes of a port of the main kernel; of ``sshd``, those of the SSH gate."""

    _writer: asyncio.StreamWriter

    async def begin(self, session: ComputeSession) -> None:
        service = self.query.get("app", "")
        if service == SSHD:
            host = settings.SSH_PUBLIC_HOST or reached_at(settings.SSH_HOST)
            port = settings.SSH_PUBLIC_PORT if settings.SSH_PUBLIC_HOST else settings.SSH_PORT
            reader, self._writer = await _dialled(host, port)
        else:
            target = await database_sync_to_async(self._target_of)(session, service)
            await _started(target)
            reader, self._writer = await _tunnelled(target)
        self._open_ends.callback(self._writer.close)
        await self.accept()
        self.start_pump(self._relay(reader))

    def _target_of(self, session: ComputeSession, service: str) -> Target:
        kernel = reach(signed_in(self.credentials), "app", session_id=session.pk)
        found = {name_of(one): one for one in apps_of(session, main_kernel(session), settings_of(session))}
        if service not in found or kernel.agent is None:
            raise Refusal(REFUSED, Message("The session has no app of this name."))
        app, agent = found[service], kernel.agent
        place = (kernel.pk, kernel.generation, app.name, app.port, agent.gateway_url)
        return Target(*place, session_id=session.pk, slowness=agent.slowness)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Send the bytes to the port."""
        if bytes_data:
            self._writer.write(bytes_data)
            await self._writer.drain()

    async def _relay(self, reader: asyncio.StreamReader) -> tuple[int, str]:
        while piece := await reader.read(_PIECE):
            await self.send(bytes_data=piece)
        return ENDED, ""


def signer_of_handshake(scope: Mapping[str, Any]) -> KeyPair:
    """Return the key pair that signed a handshake. Raises SignatureRefused, also while the room is off."""
    headers = headers_of(scope)
    if not settings.COMPAT:
        raise SignatureRefused("This address is not used here.")
    is_secure = scope["scheme"] == "wss" or (settings.SECURE and headers.get("x-forwarded-proto") == "https")
    address = (scope.get("client") or ("",))[0]
    check_way(is_secure=is_secure, address=address, is_forwarded="x-forwarded-for" in headers or "forwarded" in headers)
    path_, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    signed = Signed(
        method="GET",
        path=f"{path_}?{query}" if query else path_,
        host=headers.get("host", ""),
        date=headers.get("x-backendai-date") or headers.get("date", ""),
        version=headers.get("x-backendai-version", ""),
    )
    return signer_of(signed, headers.get("authorization", "").partition(" ")[2].strip(), now=timezone.now())


def _order_in(text: str) -> dict[str, Any]:
    """Return the order to the guest that the first frame of the client means."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    options: Any = said.get("options")
    options = options if isinstance(options, dict) else {}
    steps = {step: options.get(step) for step in ("clean", "build", "exec")}
    mode = "batch" if said.get("mode") == "batch" else "query"
    return {**_TAKE, "op": "run", "mode": mode, "code": str(said.get("code") or ""), "options": steps, "takes": True}


async def _dialled(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(10):
            return await asyncio.open_connection(host, port)
    except OSError as error:
        raise Refusal(NOT_RUNNING, Message("The SSH gate does not answer.")) from error


async def _started(target: Target) -> None:
    """Wait until the app runs; the agent starts it with the first question."""
    async with new_client() as client, asyncio.timeout(_START_SECONDS * target.slowness):
        while (state := await look(client, target, again=False)).state != "ready":
            if state.state != "starting":
                raise Refusal(NOT_RUNNING, state.message or Message("The app did not start."))
            await asyncio.sleep(0.5)


async def _tunnelled(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    transport, first = await open_tunnel(target)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    reader.feed_data(first)
    transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


_nowhere: Any = nowhere  # the types of ``path`` know HTTP views only
_STREAM = f"{PREFIX.strip('/')}/stream/session/<str:name>"
websockets = URLRouter(
    [
        path(f"{_STREAM}/execute", ExecuteConsumer.as_asgi()),
        path(f"{_STREAM}/tcpproxy", TcpProxyConsumer.as_asgi()),
        re_path("^", _nowhere),
    ]
)
