"""Events for browsers leave in order, and nobody's work waits for Redis or fails with it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from django.db import transaction
from redis import Redis

from backendai.base.wire import browser
from backendai.base.wire.browser import EVERYTHING, SessionEvent, _Sender, group_of, publish_on_commit
from backendai.ops.run.valkey import answers, find_server
from tests.patience import until

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
ADA = "0ada"
LAST_WORDS = """
import django, sys
django.setup()
from backendai.base.wire import browser
exec(sys.argv[1])
browser.publish([browser.SessionEvent("farewell", "0ada", "TERMINATED", 1)])
"""


@pytest.fixture
def address(tmp_path: Path, settings: Any) -> Path:
    """Where Redis will be; processes and threads that are told nothing else look for it there."""
    path = tmp_path / "r"  # short: addresses of sockets are
    hosts = [{"address": f"unix://{path}", "socket_timeout": None}]
    config = {"hosts": hosts, "prefix": "test:events"}
    settings.CHANNEL_LAYERS = {
        "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": config}
    }
    return path


@contextmanager
def redis(address: Path) -> Iterator[None]:
    """Run a server of the test's own."""
    options = ["--port", "0", "--unixsocket", str(address), "--save", "", "--dir", str(address.parent)]
    with subprocess.Popen([find_server(), *options], stdout=subprocess.DEVNULL) as server:
        try:
            until(lambda: answers(address))
            yield
        finally:
            server.kill()


@asynccontextmanager
async def listening(group: str) -> AsyncIterator[Callable[[], Any]]:
    """Give a function that waits for the next event of the group, whether it comes alone or with others."""
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add(group, channel)
    waiting: list[dict[str, Any]] = []

    async def following() -> dict[str, Any]:
        if not waiting:
            message = await asyncio.wait_for(layer.receive(channel), PATIENCE)
            waiting.extend(message.get("events", [message]))
        return waiting.pop(0)

    try:
        yield following
    finally:
        await layer.flush()


@pytest.fixture
def sender() -> Iterator[_Sender]:
    made = _Sender()
    yield made
    if made._thread:
        made._batches.put(None)
        made._thread.join(PATIENCE)
        assert not made._thread.is_alive()


def end_after_publishing(address: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a process of the portal that publishes one event and has nothing more to do."""
    told = {
        "REDIS_URL": f"unix://{address}",
        "BACKENDAI_DATA": str(address.parent),
        "DJANGO_SETTINGS_MODULE": "backendai.settings.portal",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", LAST_WORDS, before]
    return subprocess.run(command, env=os.environ | told, capture_output=True, text=True, timeout=120)


def event(version: int, session: str = "5e5510", owner: str = ADA) -> SessionEvent:
    return SessionEvent(session, owner, "RUNNING", version)


@pytest.mark.asyncio
async def test_it_keeps_the_order_of_every_caller(address: Path, sender: _Sender) -> None:
    callers, versions = 4, range(100)

    def change(session: str) -> None:
        for version in versions:
            sender.put([event(version, session)])

    heard: dict[str, list[int]] = {f"session-{number}": [] for number in range(callers)}
    with redis(address):
        async with listening(EVERYTHING) as following:
            threads = [threading.Thread(target=change, args=[session]) for session in heard]
            for thread in threads:
                thread.start()
            for _ in range(callers * len(versions)):
                message = await following()
                heard[message["id"]].append(message["version"])
    assert heard == {session: list(versions) for session in heard}


@pytest.mark.asyncio
async def test_it_tells_the_owner_and_those_who_see_everything(address: Path, sender: _Sender) -> None:
    with redis(address):
        async with listening(group_of(ADA)) as owner, listening(EVERYTHING) as administrator:
            sender.put([event(1, owner="somebody-else"), event(2), event(3)])
            assert [(await owner())["version"] for _ in range(2)] == [2, 3]
            assert [(await administrator())["version"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.asyncio
async def test_it_sends_many_events_in_one_message_for_each_reader(address: Path, sender: _Sender) -> None:
    with redis(address):
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(EVERYTHING, channel)
        sender.put([event(version) for version in range(50)])
        message = await asyncio.wait_for(layer.receive(channel), PATIENCE)
        await layer.flush()
    assert message["type"] == "sessions.changed"
    assert [one["version"] for one in message["events"]] == list(range(50))


@pytest.mark.asyncio
async def test_it_goes_on_when_redis_comes_back(
    address: Path, sender: _Sender, caplog: pytest.LogCaptureFixture
) -> None:
    sender.put([event(1)])
    until(lambda: "browser events not sent" in caplog.text)
    with redis(address):
        async with listening(EVERYTHING) as following:
            first = asyncio.ensure_future(following())
            version = 1
            while not first.done():  # it rests for a moment after a failure, and what comes meanwhile is lost
                version += 1
                sender.put([event(version)])
                await asyncio.sleep(0.05)
            assert 1 < (await first)["version"] <= version


def test_its_callers_do_not_wait_while_redis_is_there_and_says_nothing(address: Path, sender: _Sender) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(address))
        mute.listen()
        sender.put([event(1)])
        connection, _ = mute.accept()  # from now on the thread waits for an answer
        with connection:
            for version in range(2, 1000):
                sender.put([event(version)])
            assert sender._batches.qsize() == 998
            assert sender._thread is not None and sender._thread.is_alive()


@pytest.mark.parametrize("error", [OSError("gone"), ChannelFull(), RuntimeError("odd"), TypeError("odder")])
def test_no_error_of_the_layer_reaches_a_caller_or_ends_the_thread(
    error: Exception, sender: _Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    async def send(events: list[SessionEvent]) -> None:
        sent.extend(one.version for one in events)
        if len(sent) == 1:
            raise error

    monkeypatch.setattr(browser, "_send", send)
    monkeypatch.setattr(browser, "_PAUSE_SECONDS", 0.0)
    sender.put([event(1)])
    sender.put([event(2)])
    until(lambda: sent == [1, 2])


def test_a_process_that_ends_right_after_its_work_has_told_of_it(address: Path) -> None:
    patient = f"browser._LAST_WORDS_SECONDS = {PATIENCE}"
    with redis(address), Redis(unix_socket_path=str(address)) as client, client.pubsub() as heard:
        heard.psubscribe("*")
        assert heard.get_message(timeout=PATIENCE)["type"] == "psubscribe"
        ended = end_after_publishing(address, patient)
        assert ended.returncode == 0, ended.stderr
        channels = [heard.get_message(timeout=PATIENCE)["channel"].decode() for _ in range(2)]
    assert [channel.partition("__group__")[2] for channel in channels] == [group_of(ADA), EVERYTHING]


def test_a_process_ends_though_redis_says_nothing(address: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(address))
        mute.listen()
        ended = end_after_publishing(address)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.django_db
def test_it_tells_nothing_of_a_transaction_that_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[SessionEvent]] = []
    monkeypatch.setattr(browser._sender, "put", told.append)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish_on_commit([event(1)])
        raise ZeroDivisionError
    assert told == []


def test_a_server_that_hangs_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        def __init__(self) -> None:
            self.hangs, self.sent = True, 0

        async def group_send(self, *_: Any) -> None:
            if self.hangs:
                await asyncio.sleep(3600)
            self.sent += 1

    layer = Hanging()
    monkeypatch.setattr(browser, "get_channel_layer", lambda: layer)
    monkeypatch.setattr(browser, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(browser, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(browser, "_MOST_WAITING", 5)
    sender = _Sender()
    sender.put([SessionEvent("first", ADA, "RUNNING", 1)])
    time.sleep(0.2)
    for number in range(100):
        sender.put([SessionEvent(str(number), ADA, "RUNNING", 1)])
    assert sender._batches.qsize() <= 5
    layer.hangs = False
    until(lambda: layer.sent > 0)
    sender._send_remaining()
