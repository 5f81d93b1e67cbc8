"""Users at work while a seeded nemesis kills, freezes and removes at random: in the end everything adds up."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest
from docker.errors import APIError

from tests.patience import until
from tests.system.client import TERMINAL, Client
from tests.system.platform import Platform

USERS = 4
MINUTES = float(os.environ.get("BACKENDAI_TEST_CHAOS_MINUTES", "1"))
SEED = int(os.environ.get("BACKENDAI_TEST_SEED", "20261120"))
ROLES = ["web", "control", "beat", "agent", "valkey"]
QUIET_WITHIN = 90.0
SMALL = {"cpu": "0.1", "mem": "16m"}

pytestmark = [
    pytest.mark.system,
    pytest.mark.docker,
    pytest.mark.long,
    pytest.mark.timeout(MINUTES * 60 + 400),
    pytest.mark.usefixtures("tiny_image"),
]


@pytest.fixture
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("soak"), agents=2) as platform:
        yield platform


class User:
    """Launches and ends sessions at random; remembers what the portal has acknowledged."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client, self._chance = client, chance
        self.launched: list[str] = []
        self.ended: list[str] = []

    def work(self, is_over: Callable[[], bool]) -> None:
        """Go on until it is over."""
        while not is_over():
            self._chance.choice([self._launch, self._launch, self._end, self._look])()
            time.sleep(self._chance.uniform(0.1, 1.0))

    def _launch(self) -> None:
        if len(self.launched) - len(self.ended) < 6:
            self.launched.append(self._client.launch(resources=SMALL)["id"])

    def _end(self) -> None:
        left = [session for session in self.launched if session not in self.ended]
        if left:
            session = self._chance.choice(left)
            self._client.terminate(session)
            self.ended.append(session)

    def _look(self) -> None:
        self._client.sessions()
        self._client.group()


class Nemesis:
    """Strikes every few seconds; ``actions`` is the list of what it did."""

    def __init__(self, platform: Platform, chance: random.Random) -> None:
        self._platform, self._chance = platform, chance
        self.actions: list[str] = []
        self.removed = 0

    def work(self, is_over: Callable[[], bool]) -> None:
        """Go on until it is over; everything frozen goes on then."""
        while not is_over():
            time.sleep(self._chance.uniform(1.0, 6.0))
            self._chance.choice([self._kill, self._kill, self._freeze, self._remove])()

    def _kill(self) -> None:
        self._strike(signal.SIGKILL, 0.0)

    def _freeze(self) -> None:
        self._strike(signal.SIGSTOP, self._chance.uniform(1.0, 8.0))

    def _strike(self, number: signal.Signals, seconds: float) -> None:
        role, pids = self._chance.choice(ROLES), self._platform.pids()
        pid = pids.get(role) or pids.get(f"{role}-{self._chance.randint(1, 2)}")
        if pid is None:  # it is being started again
            return
        self.actions.append(f"{number.name} {role} {seconds:.1f}")
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)

    def _remove(self) -> None:
        alive = sorted(self._platform.lives())
        if alive:
            self.actions.append("docker rm -f")
            with suppress(APIError):
                self._platform.engine.remove_container(f"krn-{self._chance.choice(alive)}", force=True)
                self.removed += 1


def test_it_adds_up_after_minutes_of_misfortune(platform: Platform) -> None:
    chance = random.Random(SEED)
    users = [User(platform.client, random.Random(chance.random())) for _ in range(USERS)]
    nemesis = Nemesis(platform, random.Random(chance.random()))
    over = threading.Event()
    with ThreadPoolExecutor(USERS + 1) as crew:
        threading.Timer(MINUTES * 60, over.set).start()
        work = [crew.submit(one.work, over.is_set) for one in [*users, nemesis]]
        for future in work:
            try:
                future.result()
            finally:
                over.set()
    said = f"seed {SEED}: {nemesis.actions}"
    check_that_all_adds_up(platform, users, nemesis.removed, said)


def check_that_all_adds_up(platform: Platform, users: list[User], removed: int, said: str) -> None:
    """Every launch exactly once, every end obeyed, nothing lost but what was removed, nothing left at the end."""
    client = platform.client
    launched = {session for user in users for session in user.launched}
    ended = {session for user in users for session in user.ended}

    def settled() -> bool:
        now = {session: client.session(session) for session in launched}
        return all(
            one["status"] in TERMINAL if one["id"] in ended else one["status"] in {"RUNNING", *TERMINAL}
            for one in now.values()
        )

    until(settled, QUIET_WITHIN, f"every session has settled; {said}", last=lambda: states(client, launched))
    assert {session["id"] for session in client.sessions()} == launched, said
    platform.audit()
    lost = [client.session(session) for session in launched - ended]
    lost = [one for one in lost if one["status"] != "RUNNING"]
    assert len(lost) <= removed, (said, lost)
    assert {one["status_reason"] for one in lost} <= {"container-missing", "container-killed"}, (said, lost)
    assert len(platform.lives()) == len(launched - ended) - len(lost)

    client.end(*(launched - ended))
    assert client.group()["occupied"] == {"cpu": "0", "mem": "0"}
    until(lambda: not platform.containers(), 30, f"all containers are gone; {said}")
    until(lambda: not platform.scratch_folders(), 60, "all scratch folders are gone", last=platform.scratch_folders)
    platform.audit()
    zombies = [child for child in psutil.process_iter(["status", "ppid"]) if child.info["status"] == "zombie"]
    family = {platform.pid, *(child.pid for child in psutil.Process(platform.pid).children(True))}
    assert not [child for child in zombies if child.info["ppid"] in family], zombies


def states(client: Client, sessions: set[str]) -> list[tuple[str, str, str]]:
    """Return id, status and reason of the sessions that live."""
    found = [client.session(session) for session in sessions]
    return [(one["id"], one["status"], one["status_reason"]) for one in found if one["status"] not in TERMINAL]
