"""Runs in the guest itself: what is on the disk when one is accepted, and what readers of many runs cost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.base import KernelGone
from backendai.agent.backends.guest_host import GuestPlace
from backendai.agent.gateway.guest_links import GuestLinks
from backendai.agent.guest.code.checking import ChangeSignal
from backendai.agent.guest.code.interpreter import InterpreterFailed
from backendai.agent.guest.code.journal import Journal, RunLog
from backendai.agent.guest.code.run import FINISHED, RUNNING, Run, new_record
from backendai.agent.guest.follower import Follower
from backendai.agent.guest.guest import Guest
from tests.patience import patient

pytestmark = pytest.mark.asyncio


class Endless:
    """An interpreter whose code never ends."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []
        self._end = asyncio.Event()

    async def next(self) -> dict[str, Any] | None:
        await self._end.wait()
        return None

    def tell(self, order: dict[str, Any]) -> None:
        self.told.append(order)

    def interrupt(self) -> None: ...

    async def kill(self) -> None:
        self._end.set()

    async def why_it_ended(self) -> InterpreterFailed:
        return InterpreterFailed("ended", "It has ended.")


class Asking(Endless):
    """An interpreter whose code asks for a line of input."""

    def __init__(self) -> None:
        super().__init__()
        self.is_interrupted = False
        self._asks = asyncio.Event()

    async def next(self) -> dict[str, Any] | None:
        await self._asks.wait()
        if self._asked:
            return await super().next()
        self._asked = True
        return {"ask": "name? "}

    _asked = False

    def tell(self, order: dict[str, Any]) -> None:
        super().tell(order)
        self._asks.set()

    def interrupt(self) -> None:
        self.is_interrupted = True


class Reader:
    """Takes what a guest writes. ``lines`` are the answers."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        self.lines += [json.loads(line) for line in data.splitlines() if line]

    async def drain(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    async def until(self, count: int) -> None:
        """Wait until so many answers have come."""
        async with asyncio.timeout(patient(10)):
            while len(self.lines) < count:
                await asyncio.sleep(0)


def order_of(name: str) -> dict[str, Any]:
    order = {"run_id": name, "context": "main", "language": "", "mode": "query", "code": "pass"}
    return {**order, "options": {}, "timeout": 0}


async def ask(guest: Guest, **order: Any) -> dict[str, Any]:
    reader, writer = asyncio.StreamReader(), Reader()
    reader.feed_data(json.dumps(order).encode() + b"\n")
    await guest.answer(reader, writer)  # type: ignore[arg-type]
    return writer.lines[0]


async def test_a_run_is_on_the_disk_when_it_is_accepted_whether_it_runs_or_waits(tmp_path: Path) -> None:
    async def start(*_: Any) -> Endless:
        return Endless()

    async def languages() -> list[dict[str, str]]:
        return []

    guest = Guest(Journal(tmp_path), start, languages)
    states = [(await ask(guest, op="run", run_id=name, code=name))["state"] for name in ("one", "two", "three")]
    assert states == ["RUNNING", "QUEUED", "QUEUED"]
    found = [(record["run_id"], record["state"], record["code"]) for record in Journal(tmp_path).records()]
    assert found == [("one", "RUNNING", "one"), ("two", "QUEUED", "two"), ("three", "QUEUED", "three")]
    await guest.close()


async def test_code_that_waits_for_input_is_interrupted_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, timers, interpreter = asyncio.get_running_loop(), list[tuple[float, Any, Any]](), Asking()
    really_later = loop.call_later

    def later(seconds: float, call: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append((seconds, call, args))
        return really_later(seconds, call, *args, **options)

    async def start(*_: Any) -> Asking:
        return interpreter

    async def languages() -> list[dict[str, str]]:
        return []

    monkeypatch.setattr(loop, "call_later", later)
    guest = Guest(Journal(tmp_path), start, languages)
    await ask(guest, **{**order_of("one"), "op": "run"})
    async with asyncio.timeout(patient(10)):
        while not (limits := [timer for timer in timers if "input-timeout" in timer[2]]):
            await asyncio.sleep(0)
    [(seconds, call, args)] = limits
    assert seconds == 3600 and not interpreter.is_interrupted
    call(*args)
    [record] = Journal(tmp_path).records()
    assert interpreter.is_interrupted and (record["state"], record["reason"]) == ("INTERRUPTING", "input-timeout")
    await guest.close()


async def test_of_many_runs_only_those_with_something_new_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, journal, runs = ChangeSignal(), Journal(tmp_path), dict[str, Run]()

    def add(name: str) -> Run:
        run = runs[name] = Run(journal, new_record(len(runs) + 1, order_of(name)), changes.tell)
        run.move(RUNNING)
        return run

    for number in range(20):
        add(f"r{number}").move(FINISHED, exit_code=0)
    reader, read = Reader(), list[str]()
    follower = Follower(runs, dict.fromkeys(runs, 0), reader)  # type: ignore[arg-type]
    following = asyncio.create_task(follower.follow(changes))
    await reader.until(20)
    really_read = RunLog.read

    def counted(log: RunLog, *args: Any) -> Any:
        read.append(log.folder.name)
        return really_read(log, *args)

    monkeypatch.setattr(RunLog, "read", counted)
    new = add("new")
    await reader.until(21)
    new.say("printed")
    await reader.until(22)
    runs["r7"].say("late")
    await reader.until(23)
    assert set(read) == {"new", "r7"}
    assert [one["run_id"] for one in reader.lines[20:]] == ["new", "new", "r7"]
    assert reader.lines[-1]["items"] == [{"type": "log", "text": "late"}]
    following.cancel()


@pytest.mark.parametrize(("after", "told"), [({"r1": 0}, ["r1", "r2"]), ({"r2": 0}, ["r2"]), ({}, [])])
async def test_a_run_that_has_ended_since_the_reader_read_the_list_is_told(
    tmp_path: Path, after: dict[str, int], told: list[str]
) -> None:
    changes, journal, runs = ChangeSignal(), Journal(tmp_path), dict[str, Run]()
    for number in range(3):
        run = runs[f"r{number}"] = Run(journal, new_record(number + 1, order_of(f"r{number}")), changes.tell)
        run.move(RUNNING)
        run.move(FINISHED, exit_code=0)
    reader = Reader()
    following = asyncio.create_task(Follower(runs, after, reader).follow(changes))  # type: ignore[arg-type]
    await reader.until(len(told))
    await asyncio.sleep(0)
    assert [one["run_id"] for one in reader.lines] == told
    following.cancel()


class Gone(GuestPlace):
    """A kernel whose folder is removed while its guest is to be started."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._is_gone = folder, False

    def folder(self, kernel_id: UUID) -> Path:
        if self._is_gone:
            raise KernelGone("The kernel is not running on this agent.")
        self._is_gone = True
        return self._folder

    def was_launched(self, kernel_id: UUID) -> bool:
        return False

    def launch(self, kernel_id: UUID) -> None:
        raise AssertionError("there is nothing to start it in")


async def test_a_kernel_that_ends_while_its_guest_is_to_start_is_gone_and_no_fault_of_the_agent(tmp_path: Path) -> None:
    with pytest.raises(KernelGone):
        await GuestLinks(Gone(tmp_path / "removed")).open(uuid4())
