"""Short questions to guests go over connections that are kept, and one that died meanwhile costs no answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import uvloop
from aiohttp import web

from backendai.gates.gateways import guests
from backendai.gates.gateways.asking import NodeUnreachable
from backendai.gates.gateways.guests import GuestTarget, ask

ANSWER = {"run_id": "r", "state": "RUNNING", "contexts": []}


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests.meter, "touch", lambda session_id: None)


ANSWER = {"run_id": "r1", "state": "RUNNING", "contexts": []}


class Gateway:
    """Answers each question, or hangs up on those whose number is in ``deaf``."""

    def __init__(self, *deaf: int) -> None:
        self.deaf, self.peers, self.questions, self.takes = deaf, list[Any](), list[Any](), 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.peers.append(request.transport and request.transport.get_extra_info("peername"))
        self.questions.append(await request.json())
        await asyncio.sleep(self.takes)
        if len(self.questions) in self.deaf:
            assert request.transport is not None
            request.transport.close()
        return web.json_response(ANSWER)

    async def __aenter__(self) -> GuestTarget:
        app = web.Application()
        app.router.add_post("/execute", self.answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        port = self.runner.addresses[0][1]
        return GuestTarget(uuid4(), uuid4(), 1, f"http://127.0.0.1:{port}")

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()


def test_questions_share_a_connection_and_what_changes_something_gets_its_own() -> None:
    async def walk() -> None:
        gateway = Gateway()
        async with gateway as target:
            for op in ("run", "read", "runs", "input"):
                assert await ask(target, {"op": op}) == ANSWER
        assert len(set(gateway.peers[:3])) == 1 and gateway.peers[3] != gateway.peers[0]

    uvloop.run(walk())


def test_a_run_is_asked_again_under_the_same_name_when_the_connection_died() -> None:
    async def walk() -> None:
        gateway = Gateway(2)
        async with gateway as target:
            await ask(target, {"op": "runs"})
            assert await ask(target, {"op": "run", "code": "1"}) == ANSWER
        first, second = gateway.questions[1:]
        assert first == second and first["run_id"]

    uvloop.run(walk())


def test_an_agent_that_has_said_that_it_is_slow_may_answer_later() -> None:
    async def walk() -> None:
        gateway = Gateway()
        gateway.takes = 0.5
        async with gateway as target:
            with pytest.raises(NodeUnreachable):
                await ask(target, {"op": "input"}, seconds=0.1)
            assert await ask(replace(target, slowness=600), {"op": "input"}, seconds=0.1) == ANSWER

    uvloop.run(walk())


def test_nothing_is_asked_for_ever_and_input_is_never_given_twice() -> None:
    async def walk() -> None:
        gateway = Gateway(*range(1, 9))
        async with gateway as target:
            for op in ("input", "read"):
                with pytest.raises(NodeUnreachable):
                    await ask(target, {"op": op})
        assert [one["op"] for one in gateway.questions] == ["input", "read", "read"]

    uvloop.run(walk())
