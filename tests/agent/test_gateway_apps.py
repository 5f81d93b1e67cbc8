"""Tunnels to the ports of kernels: for holders of a ticket for that port, byte by byte, and no further."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from backendai.agent.backends.guest_host import InProcessGuests
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.guest.code.journal import Journal
from backendai.agent.guest.guest import Guest
from backendai.agent.kernel_index import KernelIndex
from backendai.base.wire.tickets import new_private_key, public_key_of, sign_ticket
from tests.agent.fake_services import FakeServices
from tests.agent.memory_backend import Entry, MemoryBackend
from tests.patience import patient

pytestmark = pytest.mark.asyncio
KEY = new_private_key()
BIG = 8 * 2**20


class Setting:
    """A gateway with one running kernel of generation 2, on whose port an echo listens."""

    def __init__(self, client: TestClient, gateway: Gateway, services: FakeServices, kernel_id: UUID) -> None:
        self.client, self.gateway, self.services, self.kernel_id = client, gateway, services, kernel_id
        self.roster = KernelIndex()
        self.port = 0
        self.greeting, self.stays_silent = b"", False
        self.connections: list[asyncio.StreamWriter] = []
        self.received = 0

    def ticket(self, **over: object) -> str:
        claims = {"kernel_id": self.kernel_id, "generation": 2, "purpose": "app", "now": time.time()}
        claims |= {"service": "echo", "port": self.port} | over
        return sign_ticket(KEY, **claims)  # type: ignore[arg-type]

    async def tunnel(self, **over: object) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the head of the answer and the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.client.port)
        ticket = self.ticket(**over)
        request = f"GET /kernels/{self.kernel_id}/app HTTP/1.1\r\nHost: node\r\nAuthorization: Ticket {ticket}\r\n"
        writer.write(f"{request}Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patient(5))
        writer.write(b"early ")
        return head, reader, writer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        writer.write(self.greeting)
        while not self.stays_silent and (data := await reader.read(65536)):
            self.received += len(data)
            writer.write(data)
            await writer.drain()
        if not self.stays_silent:
            writer.write(b" bye")
            writer.close()


class OneGuest(InProcessGuests):
    """The guest of every kernel, in this process."""

    def __init__(self, folder: Path) -> None:
        self._guest = Guest(Journal(folder), AsyncMock(), AsyncMock())
        self._answers: set[asyncio.Task[None]] = set()

    async def open(self, kernel_id: UUID) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to it."""
        ours, theirs = socket.socketpair()
        self._answers.add(asyncio.create_task(self._guest.answer(*await asyncio.open_connection(sock=theirs))))
        return await asyncio.open_connection(sock=ours)

    def working(self) -> set[UUID]:
        """Return no kernel: nothing runs here."""
        return set()


class LyingGuest(OneGuest):
    """A guest that answers with more levels than Python reads."""

    async def open(self, kernel_id: UUID) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(b"[" * 50_000 + b"\n")
        return await asyncio.open_connection(sock=ours)


@asynccontextmanager
async def setting(guests: InProcessGuests | None = None) -> AsyncIterator[Setting]:
    backend, roster, kernel_id, services = MemoryBackend(), KernelIndex(), uuid4(), FakeServices()
    backend.entries[kernel_id] = Entry(2)
    backend.services, backend.guests = services, guests
    roster.note(kernel_id, 2)
    gateway = Gateway(GatewayView(backend, roster, lambda: public_key_of(KEY), time.time, dict))
    async with TestClient(TestServer(gateway.application(), handler_cancellation=True)) as client:
        here = Setting(client, gateway, services, kernel_id)
        here.roster = roster
        echo = await asyncio.start_server(here.serve, "127.0.0.1", 0)
        here.port = echo.sockets[0].getsockname()[1]
        yield here
        for one in here.connections:
            one.transport.abort()
        echo.close()


async def test_it_passes_every_byte_both_ways_from_the_first_to_the_last() -> None:
    async with setting() as here:
        here.greeting = b"hello "
        head, reader, writer = await here.tunnel()
        assert head.startswith(b"HTTP/1.1 101 ")
        writer.write(bytes(range(256)))
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), patient(5)) == b"hello early " + bytes(range(256)) + b" bye"
        writer.close()


async def test_it_goes_through_the_guest_where_the_kernel_has_no_address(tmp_path: Path) -> None:
    async with setting(guests=OneGuest(tmp_path)) as here:
        here.services.addresses, here.greeting = [""], b"hello "
        head, reader, writer = await here.tunnel()
        assert head.startswith(b"HTTP/1.1 101 ")
        writer.write(bytes(range(256)) * 2**14)
        writer.write_eof()
        assert (
            await asyncio.wait_for(reader.read(), patient(5)) == b"hello early " + bytes(range(256)) * 2**14 + b" bye"
        )
        writer.close()
        here.services.addresses, before = ["127.0.0.2"], len(here.connections)  # where nothing listens
        _, reader, writer = await here.tunnel()
        assert await asyncio.wait_for(reader.readexactly(12), patient(5)) == b"hello early "
        writer.transport.abort()
        async with asyncio.timeout(patient(5)):
            while not here.connections[before].transport.is_closing():
                await asyncio.sleep(0.01)
        head, *_ = await here.tunnel(port=1)
        assert head.startswith(b"HTTP/1.1 502 ")


async def test_a_guest_that_answers_nonsense_opens_no_tunnel(tmp_path: Path) -> None:
    async with setting(guests=LyingGuest(tmp_path)) as here:
        here.services.addresses = [""]
        head, _, writer = await here.tunnel()
        assert head.startswith(b"HTTP/1.1 502 ")
        writer.close()


async def test_it_lets_a_slow_reader_slow_the_sender_down() -> None:
    async with setting() as here:
        _, reader, writer = await here.tunnel()
        data = b"x" * BIG
        sending = asyncio.create_task(_send(writer, data * 4))
        before = -1
        while here.received != before:  # until nothing moves any more
            before = here.received
            await asyncio.sleep(0.3)
        assert before < 4 * BIG, "somebody keeps everything in memory"
        count = 0
        while count < len(b"early ") + 4 * BIG:
            count += len(await asyncio.wait_for(reader.read(2**20), patient(5)))
        await sending
        writer.close()


async def test_it_ends_both_sides_when_one_goes() -> None:
    async with setting() as here:
        _, reader, _ = await here.tunnel()
        await asyncio.wait_for(reader.readexactly(6), patient(5))
        here.connections[0].transport.abort()
        assert await asyncio.wait_for(reader.read(), patient(5)) == b""
        _, reader, writer = await here.tunnel()
        await asyncio.wait_for(reader.readexactly(6), patient(5))
        writer.transport.abort()
        async with asyncio.timeout(patient(5)):
            while not here.connections[1].transport.is_closing():
                await asyncio.sleep(0.01)


async def test_a_client_that_leaves_while_the_app_is_reached_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare = web.StreamResponse.prepare

    async def leave_and_prepare(answer: web.StreamResponse, request: web.BaseRequest) -> object:
        if answer.status == 101:
            assert request.transport is not None
            request.transport.close()
        return await prepare(answer, request)

    monkeypatch.setattr(web.StreamResponse, "prepare", leave_and_prepare)
    async with setting() as here:
        with pytest.raises(asyncio.IncompleteReadError):
            await here.tunnel()
        async with asyncio.timeout(patient(5)):
            while not (here.connections and here.connections[0].transport.is_closing()):
                await asyncio.sleep(0.01)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_it_cuts_tunnels_when_the_agent_goes() -> None:
    async with setting() as here:
        _, reader, _ = await here.tunnel()
        await asyncio.wait_for(reader.readexactly(6), patient(5))
        await here.gateway.close_websockets()
        assert await asyncio.wait_for(reader.read(), patient(5)) == b""


@pytest.mark.parametrize(
    "over",
    [{"purpose": "terminal"}, {"generation": 1}, {"generation": 3}, {"kernel_id": uuid4()}, {"now": 0.0}],
    ids=["purpose", "older", "newer", "kernel", "expired"],
)
async def test_it_opens_nothing_for_a_ticket_that_is_not_good(over: dict[str, object]) -> None:
    async with setting() as here:
        head, *_ = await here.tunnel(**over)
        assert head.startswith(b"HTTP/1.1 403 ")
        assert here.connections == []


async def test_it_opens_the_port_of_the_ticket_and_no_other() -> None:
    async with setting() as here:
        other = await asyncio.start_server(here.serve, "127.0.0.1", 0)
        ticket = {"Authorization": f"Ticket {here.ticket()}", "Connection": "Upgrade", "Upgrade": "tcp"}
        port = other.sockets[0].getsockname()[1]
        answer = await here.client.get(f"/kernels/{here.kernel_id}/app?port={port}&service=x", headers=ticket)
        assert answer.status == 101
        assert here.connections[0].get_extra_info("sockname")[1] == here.port
        answer.close()
        other.close()


async def test_it_says_that_nothing_listens() -> None:
    async with setting() as here:
        head, reader, _ = await here.tunnel(port=1)
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"app-not-listening" in await reader.read(4096)


async def test_it_does_not_trust_an_address_that_has_changed_hands_meanwhile() -> None:
    async with setting() as here:
        here.services.addresses = ["127.0.0.1", "127.0.0.2"]
        head, *_ = await here.tunnel()
        assert head.startswith(b"HTTP/1.1 410 ")
        here.services.is_gone = True
        head, *_ = await here.tunnel()
        assert head.startswith(b"HTTP/1.1 410 ")


async def test_it_tells_the_state_of_a_service_to_holders_of_a_ticket() -> None:
    async with setting() as here:
        url = f"/kernels/{here.kernel_id}/app"
        assert (await here.client.post(url)).status == 403
        answer = await here.client.post(url, headers={"Authorization": f"Ticket {here.ticket()}"})
        assert (await answer.json())["state"] == "ready"


async def test_it_reaches_no_port_where_nothing_keeps_sessions_apart() -> None:
    backend, roster, kernel_id = MemoryBackend(), KernelIndex(), uuid4()
    roster.note(kernel_id, 1)
    gateway = Gateway(GatewayView(backend, roster, lambda: public_key_of(KEY), time.time, dict))
    ticket = sign_ticket(KEY, kernel_id=kernel_id, generation=1, purpose="app", now=time.time(), service="a", port=22)
    async with TestClient(TestServer(gateway.application())) as client:
        answer = await client.post(f"/kernels/{kernel_id}/app", headers={"Authorization": f"Ticket {ticket}"})
        assert (answer.status, (await answer.json())["code"]) == (501, "apps-impossible")


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
