"""``kill -9`` of every process of the platform, one after the other, in the middle of a burst of launches."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

import psutil
import pytest

from tests.patience import patient, until
from tests.system.client import Body
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.usefixtures("tiny_image")]

ROLES = ["web", "control", "beat", "agent", "valkey"]
BURST = 6
SMALL = {"cpu": "0.2", "mem": "32m"}
# Without hints the control worker's own clock places, and the node's sync starts: at first sight when it knows that no
# hint can come, at second sight when the broker only seems to be there.
SYNC_ALONE, SYNC_TWICE = 12.0, 40.0
Burst = list[Future[Body]]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("kills")) as platform:
        yield platform


@pytest.fixture
def bystander(platform: Platform) -> Iterator[Body]:
    """A running session that no kill may touch."""
    session = platform.client.wait_until_running(platform.client.launch(resources=SMALL)["id"])
    before = platform.lives()
    yield session
    kernel = UUID(session["kernels"][0]["id"])
    assert platform.lives()[kernel] == before[kernel]
    assert platform.client.session(session["id"])["status"] == "RUNNING"
    platform.client.end(session["id"])


def burst_with(platform: Platform, moment: Callable[[Burst], object], strike: Callable[[], object]) -> list[Body]:
    """Launch six sessions at once and ``strike`` at the ``moment``; returns them once all run, each exactly once."""
    client = platform.client
    known = {session["id"] for session in client.sessions()}
    with ThreadPoolExecutor(BURST) as launchers:
        burst = [launchers.submit(client.launch, resources=SMALL) for _ in range(BURST)]
        moment(burst)
        strike()
        launched = [future.result()["id"] for future in burst]
    sessions = [client.wait_until_running(session_id, 60) for session_id in launched]
    assert {session["id"] for session in client.sessions()} - known == set(launched)
    alive = platform.lives()
    for session in sessions:
        assert UUID(session["kernels"][0]["id"]) in alive
    return sessions


def first_accepted(burst: Burst) -> None:
    """Wait until the portal has accepted the first launch."""
    wait(burst, return_when=FIRST_COMPLETED)


def end(platform: Platform, sessions: list[Body]) -> None:
    """End sessions; nothing of them may be left."""
    platform.client.end(*(session["id"] for session in sessions))
    gone = {UUID(session["kernels"][0]["id"]) for session in sessions}
    until(lambda: not gone & platform.containers().keys(), 15, "their containers are gone")


@pytest.mark.parametrize("role", ROLES)
def test_it_loses_nothing_when_a_process_is_killed(platform: Platform, bystander: Body, role: str) -> None:
    former = platform.pids()[role]
    sessions = burst_with(platform, first_accepted, lambda: platform.kill(role))
    platform.wait_for_restart(role, former)
    platform.audit()
    end(platform, sessions)


@pytest.mark.long
@pytest.mark.parametrize("containers", [1, 3, 5])
@pytest.mark.parametrize("role", ROLES)
def test_it_loses_nothing_at_a_later_moment(platform: Platform, bystander: Body, role: str, containers: int) -> None:
    former, there = platform.pids()[role], len(platform.containers())

    def some_started(burst: Burst) -> None:
        until(lambda: len(platform.containers()) >= there + containers, 60, f"{containers} containers are there")

    sessions = burst_with(platform, some_started, lambda: platform.kill(role))
    platform.wait_for_restart(role, former)
    platform.audit()
    end(platform, sessions)


@pytest.mark.parametrize(
    "role", ["agent", *(pytest.param(role, marks=pytest.mark.long) for role in ROLES if role != "agent")]
)
def test_it_ends_everything_when_a_process_is_killed(platform: Platform, bystander: Body, role: str) -> None:
    former = platform.pids()[role]
    sessions = burst_with(platform, first_accepted, lambda: None)
    with ThreadPoolExecutor(BURST) as enders:
        burst = [enders.submit(platform.client.terminate, session["id"]) for session in sessions]
        wait(burst, return_when=FIRST_COMPLETED)
        platform.kill(role)
        for future in burst:
            future.result()
    end(platform, sessions)
    platform.wait_for_restart(role, former)
    platform.audit()


@contextmanager
def broker_down(platform: Platform) -> Iterator[None]:
    """The broker is dead, and the supervisor, which would start it again at once, stands still."""
    os.kill(platform.pid, signal.SIGSTOP)
    try:
        platform.kill("valkey")
        yield
    finally:
        os.kill(platform.pid, signal.SIGCONT)


@contextmanager
def broker_frozen(platform: Platform) -> Iterator[None]:
    """The broker takes connections and answers nothing."""
    pid = platform.pids()["valkey"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("broker_away", "within"), [(broker_down, SYNC_ALONE), (broker_frozen, SYNC_TWICE)])
def test_it_starts_sessions_and_keeps_terminals_without_the_broker(
    platform: Platform, bystander: Body, broker_away: Callable[[Platform], AbstractContextManager[None]], within: float
) -> None:
    client = platform.client
    with client.terminal(bystander["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
        with broker_away(platform):
            session = client.wait_until_running(client.launch(resources=SMALL)["id"], within)
            terminal.run("echo $((7*7))", r"\b49\b")
        until(lambda: "valkey" in platform.pids(), 15, "the broker is back")
        terminal.run("echo $((8*7))", r"\b56\b")
    end(platform, [session, *burst_with(platform, first_accepted, lambda: None)])
    platform.audit()


def test_it_adopts_everything_after_a_kill_of_the_supervisor(platform: Platform, bystander: Body) -> None:
    children = psutil.Process(platform.pid).children(recursive=True)
    before = platform.lives()
    platform.kill_supervisor()
    left = psutil.wait_procs(children, timeout=patient(5))[1]
    assert not left, f"children outlive the supervisor: {left}"
    assert platform.lives() == before

    platform.start()
    assert platform.lives() == before
    with platform.client.terminal(bystander["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
    session = platform.client.wait_until_running(platform.client.launch(resources=SMALL)["id"])
    platform.audit()
    end(platform, [session])
