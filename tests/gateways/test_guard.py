"""When nobody can say who may, what was allowed goes on for a while, and nothing new begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from uuid import uuid4

import pytest
from django.db import DatabaseError

from backendai.gateways import guard
from backendai.gateways.guard import Guard, Unknown
from backendai.gateways.targets import Denied, Target

pytestmark = pytest.mark.asyncio
TARGET = Target(uuid4(), 1, "notes", 8080, "http://node")
WHO = ("cookie", "notes-1.apps.localhost")


class Database:
    """Answers, denies or is away; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.fault: Exception | None = None

    def __call__(self, key: tuple[str, str], now: datetime) -> Target:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return TARGET


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(guard, "close_old_connections", lambda: None)
    return Database()


@pytest.fixture
def age(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let everything that is known grow older."""
    moved = [0.0]
    real = guard.time.monotonic

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return real() + moved[0]

    monkeypatch.setattr(guard, "time", Clock)

    def grow(seconds: float) -> None:
        moved[0] += seconds

    return grow


async def test_it_asks_once_for_many_requests_and_again_when_the_answer_is_old(
    database: Database, age: Callable[[float], None]
) -> None:
    one = Guard(database)
    assert await asyncio.gather(*(one.target(WHO) for _ in range(20))) == [TARGET] * 20
    assert database.asked == 1
    age(guard.RECHECK_SECONDS)
    await one.target(WHO)
    assert database.asked == 2
    one.close()


async def test_unknown_is_not_refused_but_not_for_long(database: Database, age: Callable[[float], None]) -> None:
    one = Guard(database)
    await one.target(WHO)
    database.fault = DatabaseError("away")
    age(40)
    assert await one.target(WHO) == TARGET
    with pytest.raises(Unknown):
        await one.target(("another", WHO[1]))
    age(15)
    with pytest.raises(Unknown):
        await one.target(WHO)
    one.close()


@pytest.mark.parametrize(("fault", "older"), [(Denied("signed-out", ""), 0), (DatabaseError("away"), 55)])
async def test_what_is_open_is_cut_when_it_may_not_go_on(
    database: Database, age: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, fault: Exception, older: float
) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 0.02)
    one = Guard(database)
    await one.target(WHO)

    async def stay() -> None:
        with one.watching(WHO):
            await asyncio.sleep(3600)

    staying, watching = asyncio.create_task(stay()), asyncio.create_task(one.watch())
    await asyncio.sleep(0.1)
    assert not staying.done()
    database.fault = fault
    age(older)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(staying, 5)
    watching.cancel()
    one.close()
