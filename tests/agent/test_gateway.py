"""The gateway: who gets in, and that bytes neither get lost nor pile up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from backendai.agent.backends.base import Ended
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.gateway.terminal import WINDOW_BYTES, Acknowledge, FlowWindow, Resize, read_control
from backendai.agent.kernel_index import KernelIndex
from backendai.base.core.slots import Slots
from backendai.base.wire.tickets import new_private_key, public_key_of, sign_ticket
from backendai.base.wire.usage import HomeLook
from tests.agent.fake_services import FakeServices
from tests.agent.memory_backend import Entry, MemoryBackend
from tests.agent.specs import make_spec
from tests.patience import patient

pytestmark = pytest.mark.asyncio
KEY = new_private_key()
OTHER_KEY = new_private_key()


class Setting:
    """A gateway with one running kernel of generation 2."""

    def __init__(self, client: TestClient, gateway: Gateway, backend: MemoryBackend, kernel_id: UUID) -> None:
        self.client, self.gateway, self.backend, self.kernel_id = client, gateway, backend, kernel_id

    def ticket(self, **over: object) -> dict[str, str]:
        claims = {"kernel_id": self.kernel_id, "generation": 2, "purpose": "terminal", "now": time.time()} | over
        key = claims.pop("key", KEY)
        return {"Authorization": f"Ticket {sign_ticket(key, **claims)}"}

    def terminal(self, query: str = "", **over: object):
        return self.client.ws_connect(f"/kernels/{self.kernel_id}/terminal?{query}", headers=self.ticket(**over))


@asynccontextmanager
async def setting() -> AsyncIterator[Setting]:
    backend, roster, kernel_id = MemoryBackend(), KernelIndex(), uuid4()
    backend.entries[kernel_id] = Entry(2, log=b"one\ntwo\nthree\n")
    roster.note(kernel_id, 2)
    view = GatewayView(backend, roster, lambda: public_key_of(KEY), time.time, lambda: {"status": "ok"})
    gateway = Gateway(view)
    async with TestClient(TestServer(gateway.application(), handler_cancellation=True)) as client:
        yield Setting(client, gateway, backend, kernel_id)


async def close_code(websocket: aiohttp.ClientWebSocketResponse) -> int | None:
    while not websocket.closed:
        await asyncio.wait_for(websocket.receive(), patient(5))
    return websocket.close_code


async def test_it_passes_bytes_both_ways_and_the_size() -> None:
    async with setting() as here, here.terminal("name=web&rows=30&cols=100") as websocket:
        assert await websocket.receive_json() == {"type": "ready"}
        await websocket.send_bytes(b"\x00\xffhi")
        assert await websocket.receive_bytes() == b"\x00\xffhi"
        await websocket.send_json({"type": "resize", "rows": 50, "cols": 200})
        await websocket.send_str("{nonsense")
        await websocket.send_bytes(b"still there")
        assert await websocket.receive_bytes() == b"still there"
        assert here.backend.terminals[0].sizes == [(30, 100), (50, 200)]


async def test_it_hangs_up_on_the_shell_when_the_client_leaves() -> None:
    async with setting() as here:
        async with here.terminal() as websocket:
            await websocket.receive_json()
        async with asyncio.timeout(patient(5)):
            while not here.backend.terminals[0].closed:
                await asyncio.sleep(0.01)


async def test_it_tells_an_ended_shell_from_an_ended_kernel() -> None:
    async with setting() as here:
        async with here.terminal() as websocket:
            await websocket.receive_json()
            here.backend.terminals[0].output.put_nowait(b"")
            assert await close_code(websocket) == 4000
        async with here.terminal() as websocket:
            await websocket.receive_json()
            here.backend.entries[here.kernel_id].ended = Ended(0, "exited", "")
            here.backend.terminals[1].output.put_nowait(b"")
            assert await close_code(websocket) == 4001


async def test_it_stops_reading_the_shell_when_nobody_acknowledges() -> None:
    async with setting() as here, here.terminal() as websocket:
        await websocket.receive_json()
        terminal = here.backend.terminals[0]
        for _ in range(100):
            terminal.output.put_nowait(b"x" * 16384)
        received = 0
        while received < WINDOW_BYTES:
            received += len(await asyncio.wait_for(websocket.receive_bytes(), patient(5)))
        await asyncio.sleep(0.05)
        assert terminal.read_bytes == WINDOW_BYTES
        await websocket.send_json({"type": "ack", "bytes": 65536})
        for _ in range(4):
            received += len(await asyncio.wait_for(websocket.receive_bytes(), patient(5)))
        await asyncio.sleep(0.05)
        assert terminal.read_bytes == received == WINDOW_BYTES + 65536


async def test_it_takes_keys_while_the_window_is_full() -> None:
    async with setting() as here, here.terminal() as websocket:
        await websocket.receive_json()
        terminal = here.backend.terminals[0]
        terminal.output.put_nowait(b"x" * WINDOW_BYTES)
        await websocket.receive_bytes()
        await websocket.send_bytes(b"\x03")
        async with asyncio.timeout(patient(5)):
            while terminal.output.empty():
                await asyncio.sleep(0.01)
        assert terminal.output.get_nowait() == b"\x03"


async def test_it_opens_its_window_for_a_client_that_acknowledges_fast_and_closes_it_again() -> None:
    window = FlowWindow(WINDOW_BYTES, widest=4 * WINDOW_BYTES)

    async def acknowledge_for_a_second(started_at: float, bytes_per_second: int) -> int:
        """Returns how many bytes are sent then until there is no room."""
        for step in range(100):
            window.sent(bytes_per_second // 100)
            window.acknowledged(bytes_per_second // 100, started_at + step / 100)
        sent = 0
        with suppress(TimeoutError):
            while True:
                await asyncio.wait_for(window.wait_for_room(), 0.05)
                window.sent(1024)
                sent += 1024
        window.acknowledged(sent, started_at + 1)
        return sent

    assert await acknowledge_for_a_second(1000.0, 6 * WINDOW_BYTES) == WINDOW_BYTES
    assert 2 * WINDOW_BYTES < await acknowledge_for_a_second(2000.0, 30 * WINDOW_BYTES) <= 4 * WINDOW_BYTES
    assert await acknowledge_for_a_second(3000.0, 300 * WINDOW_BYTES) == 4 * WINDOW_BYTES
    assert await acknowledge_for_a_second(4000.0, 6 * WINDOW_BYTES) == WINDOW_BYTES


async def test_it_has_no_window_for_clients_that_say_so() -> None:
    async with setting() as here, here.terminal("ack=0") as websocket:
        await websocket.receive_json()
        for _ in range(100):
            here.backend.terminals[0].output.put_nowait(b"x" * 16384)
        received = 0
        while received < 100 * 16384:
            received += len(await asyncio.wait_for(websocket.receive_bytes(), patient(5)))


@pytest.mark.parametrize(
    "over",
    [
        {"purpose": "log"},
        {"generation": 1},
        {"generation": 3},
        {"kernel_id": uuid4()},
        {"now": 0.0},
        {"key": OTHER_KEY},
    ],
    ids=["purpose", "older", "newer", "kernel", "expired", "forged"],
)
async def test_it_accepts_and_closes_with_4003_when_the_ticket_is_not_good(over: dict[str, object]) -> None:
    async with setting() as here, here.terminal(**over) as websocket:
        assert await close_code(websocket) == 4003
        assert here.backend.terminals == []


async def test_it_refuses_whoever_has_no_ticket() -> None:
    async with setting() as here:
        async with here.client.ws_connect(f"/kernels/{here.kernel_id}/terminal") as websocket:
            assert await close_code(websocket) == 4003
        assert (await here.client.get(f"/kernels/{here.kernel_id}/log")).status == 403


async def test_it_closes_with_4001_when_the_kernel_is_not_here() -> None:
    async with setting() as here:
        gone = uuid4()
        headers = here.ticket(kernel_id=gone)
        async with here.client.ws_connect(f"/kernels/{gone}/terminal", headers=headers) as websocket:
            assert await close_code(websocket) == 4001


async def test_it_calls_no_kernel_gone_before_the_first_listing() -> None:
    backend, roster, kernel_id = MemoryBackend(), KernelIndex(is_complete=False), uuid4()
    view = GatewayView(backend, roster, lambda: public_key_of(KEY), time.time, lambda: {"status": "ok"})
    async with TestClient(TestServer(Gateway(view).application(), handler_cancellation=True)) as client:
        here = Setting(client, Gateway(view), backend, kernel_id)
        async with here.terminal() as websocket:
            assert await close_code(websocket) not in (4000, 4001, 4003)
        roster.replace([], taken_at=time.monotonic())
        async with here.terminal() as websocket:
            assert await close_code(websocket) == 4001


async def test_it_closes_terminals_with_1012_when_the_agent_goes() -> None:
    async with setting() as here, here.terminal() as websocket:
        await websocket.receive_json()
        closing = asyncio.create_task(here.gateway.close_websockets())
        assert await close_code(websocket) == 1012
        await closing


async def test_it_refuses_a_terminal_name_that_could_be_an_option() -> None:
    async with setting() as here:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await here.terminal("name=a;reboot")


async def test_it_sends_the_log_and_its_tail() -> None:
    async with setting() as here:
        headers = here.ticket(purpose="log")
        whole = await here.client.get(f"/kernels/{here.kernel_id}/log", headers=headers)
        assert await whole.read() == b"one\ntwo\nthree\n"
        tail = await here.client.get(f"/kernels/{here.kernel_id}/log?tail=1", headers=headers)
        assert await tail.read() == b"three\n"
        none = await here.client.get(f"/kernels/{here.kernel_id}/log?tail=0", headers=headers)
        assert await none.read() == b""


async def test_it_follows_a_log_until_the_reader_leaves() -> None:
    async with setting() as here:
        headers = here.ticket(purpose="log")
        response = await here.client.get(f"/kernels/{here.kernel_id}/log?follow=1", headers=headers)
        assert await response.content.readline() == b"one\n"
        response.close()


async def test_it_says_that_a_kernel_without_log_is_not_here() -> None:
    async with setting() as here:
        gone = uuid4()
        headers = here.ticket(kernel_id=gone, purpose="log")
        assert (await here.client.get(f"/kernels/{gone}/log", headers=headers)).status == 404


async def test_it_is_healthy() -> None:
    async with setting() as here:
        assert await (await here.client.get("/healthz")).json() == {"status": "ok"}


async def test_it_reads_control_frames_and_ignores_what_it_does_not_know() -> None:
    assert read_control('{"type": "resize", "rows": 24, "cols": 99999}') == Resize(24, 1000)
    assert read_control('{"type": "ack", "bytes": 10}') == Acknowledge(10)
    for odd in ('{"type": "ack", "bytes": "many"}', '{"type": "dance"}', "[]", "3", "", '{"type": "resize"}'):
        assert read_control(odd) is None


async def test_it_tells_what_is_in_a_home_folder_to_those_with_a_ticket_for_it() -> None:
    async with setting() as here:
        address = f"/kernels/{here.kernel_id}/home"
        assert (await here.client.get(address, headers=here.ticket(purpose="log"))).status == 403
        assert (await here.client.get(address, headers=here.ticket(purpose="home"))).status == 404
        look = HomeLook(home_bytes=5, pip_bytes=7, packages=1, complete=True)
        here.backend.homes[here.kernel_id] = look
        answer = await here.client.get(address, headers=here.ticket(purpose="home"))
        assert HomeLook.model_validate(await answer.json()) == look


async def test_it_reads_the_output_of_an_app_and_of_nothing_else() -> None:
    async with setting() as here:
        address, ticket = f"/kernels/{here.kernel_id}/log", here.ticket(purpose="log")
        none = await here.client.get(f"{address}?app=jupyterlab", headers=ticket)
        assert none.status == 404 and "keeps no app logs" in await none.text()
        here.backend.services = FakeServices()
        here.backend.services.words = b"Serving at 8888"
        answer = await here.client.get(f"{address}?app=jupyterlab", headers=ticket)
        assert await answer.read() == b"Serving at 8888"
        for name in ("", "../etc", "a/b", "A"):
            refused = await here.client.get(address, params={"app": name}, headers=ticket)
            assert refused.status == 404 and "is not an app name" in await refused.text()
        refused = await here.client.get(f"{address}?app=jupyterlab", headers=here.ticket(purpose="terminal"))
        assert refused.status == 403


async def test_code_runs_for_holders_of_a_ticket_to_execute_only() -> None:
    backend = SimulatedBackend(deployment="test", capacity=Slots({"cpu": 4000}), pace=SimulatedDurations(time_scale=0))
    spec, roster = make_spec(image="simulated/python", generation=2), KernelIndex()
    await asyncio.to_thread(backend.start, spec)
    roster.note(spec.kernel_id, 2)
    gateway = Gateway(GatewayView(backend, roster, lambda: public_key_of(KEY), time.time, lambda: {}))
    async with TestClient(TestServer(gateway.application(), handler_cancellation=True)) as client:
        here = Setting(client, gateway, backend, spec.kernel_id)

        async def post(body: bytes, **over: object) -> aiohttp.ClientResponse:
            headers = here.ticket(**{"purpose": "execute", **over})
            return await client.post(f"/kernels/{spec.kernel_id}/execute", data=body, headers=headers)

        question = b'{"op": "run", "code": "print(6*7)", "wait": 5}\n'
        assert (await (await post(question)).json(content_type=None))["items"] == [{"type": "stdout", "text": "42\n"}]
        refused = await post(question, purpose="terminal")
        assert (refused.status, (await refused.json())["code"]) == (403, "ticket-refused")
        assert [(await post(body)).status for body in (b"{}\n", b"[[[\n", b'{"op": "exec"}\n')] == [400, 400, 400]
        assert (await post(b"x" * 5_000_000)).status == 413
        await asyncio.to_thread(backend.remove, spec.kernel_id)
        gone = await post(question)
        assert (gone.status, (await gone.json())["code"]) == (410, "kernel-gone")
    await asyncio.to_thread(backend.close)
