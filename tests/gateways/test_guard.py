"""When nobody can say who may, what was allowed goes on for a while, and nothing new begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from uuid import uuid4

import pytest
from django.db import DatabaseError, InterfaceError

from backendai.gates.gateways import guard
from backendai.gates.gateways.guard import Guard, Unknown
from backendai.gates.gateways.targets import Denied, Target
from tests.patience import patient

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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 0.02)
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.02)


async def stay(one: Guard[tuple[str, str], Target]) -> None:
    await one.target(WHO)
    with one.watching(WHO):
        await asyncio.sleep(3600)


async def cut(staying: asyncio.Task[None]) -> bool:
    """Return whether it is cut, soon."""
    await asyncio.wait([staying], timeout=patient(5))
    return staying.cancelled()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "older"), [(Denied("signed-out", ""), 0), (DatabaseError("away"), 55), (InterfaceError("closed"), 55)]
)
async def test_what_is_open_is_cut_when_it_may_not_go_on(
    database: Database, age: Callable[[float], None], fault: Exception, older: float
) -> None:
    one = Guard(database)
    staying, watching = asyncio.create_task(stay(one)), asyncio.create_task(one.watch())
    await asyncio.sleep(0.1)
    assert not staying.done()
    database.fault = fault
    age(older)
    assert await cut(staying)
    watching.cancel()
    one.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [InterfaceError("the connection is closed"), ValueError("a fault of ours")])
async def test_no_fault_ends_the_watch(database: Database, fault: Exception) -> None:
    one = Guard(database)
    staying, watching = asyncio.create_task(stay(one)), asyncio.create_task(one.watch())
    await asyncio.sleep(0.1)
    database.fault = fault
    asked = database.asked
    while database.asked < asked + 3:
        await asyncio.sleep(0.01)
    assert not staying.done() and not watching.done()
    database.fault = Denied("signed-out", "")
    assert await cut(staying)
    watching.cancel()
    one.close()


@pytest.mark.usefixtures("impatient")
async def test_a_round_that_fails_is_followed_by_another(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []

    async def fail(_: object) -> None:
        rounds.append(1)
        raise RuntimeError("a fault of ours")

    one = Guard(database)
    monkeypatch.setattr(Guard, "_look_at_credentials", fail)
    staying, watching = asyncio.create_task(stay(one)), asyncio.create_task(one.watch())
    while len(rounds) < 3:
        await asyncio.sleep(0.01)
    database.fault = Denied("signed-out", "")
    assert await cut(staying)
    watching.cancel()
    one.close()


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_hangs_keeps_nothing_open(database: Database, age: Callable[[float], None]) -> None:
    hung = threading.Event()

    def answer(key: tuple[str, str], now: datetime) -> Target:
        if database.asked:
            hung.wait(30)
        return database(key, now)

    one = Guard(answer)
    staying, watching = asyncio.create_task(stay(one)), asyncio.create_task(one.watch())
    await asyncio.sleep(0.1)
    assert not staying.done()
    age(55)
    assert await cut(staying)
    hung.set()
    watching.cancel()
    one.close()


async def test_a_question_after_the_end_is_unknown_and_no_fault(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    one = Guard(database)
    asking = asyncio.create_task(one.target(WHO))
    one.close()
    with pytest.raises(Unknown):
        await asking
    assert caplog.records == []
