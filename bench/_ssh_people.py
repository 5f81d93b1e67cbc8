"""Several people by SSH for bin/bench ssh: their connections at rest, and folders that open from nothing."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import asyncssh
import psutil

from bench._portal import Client, Portal, say, wait_until

MOST_PER_PERSON = 32
_READY_SECONDS, _SETTLE_SECONDS = 60.0, 5.0
_ADD_PEOPLE = (
    "from backendai.domain.accounts.models import Project;"
    "from backendai.domain.accounts.services import create_person, create_token;"
    "project = Project.objects.order_by('created_at').first();"
    "[print(create_token(create_person(f'rest-{{n}}@example.com', password=None, project=project), 'bench')[1])"
    " for n in range({number})]"
)
_FOLDER, _LIMITS = "bench-data", "/api/v1/me/limits/"


def kib_at_rest(portal: Portal, port: int, folder: Path, connections: int) -> float:
    """Return the KiB that a connection at rest costs the gate: each of as many people as it takes has connections to a
    session of their own."""
    number = -(-connections // MOST_PER_PERSON)
    tokens = portal._manage("shell", "--no-imports", "-v", "0", "-c", _ADD_PEOPLE.format(number=number)).split()
    people = [Client(portal.port, token) for token in tokens[-number:]]
    keys = [_new_key(folder, number) for number in range(len(people))]
    sessions = [_session_of(person, key) for person, key in zip(people, keys, strict=True)]
    try:
        for person, session in zip(people, sessions, strict=True):
            wait_until(lambda one=person, pk=session: one.status(pk) == "RUNNING", _READY_SECONDS, pause=0.2)
        grown = asyncio.run(_grown(portal, port, keys, connections))
    finally:
        for person, session in zip(people, sessions, strict=True):
            person.end(session)
    say(f"  KiB of a connection at rest: {grown / connections / 1024:.1f}")
    return round(grown / connections / 1024, 1)


def folders_from_nothing(portal: Portal, words: list[str], rounds: int) -> float:
    """Return the median seconds from nothing to the list of one's folders. Raises RuntimeError when the session that
    opens them counts against a limit."""
    client = portal.client()
    made = client.ask("POST", "/api/v1/folders/", {"name": _FOLDER})[1]["id"]
    wait_until(lambda: client.ask("GET", f"/api/v1/folders/{made}/")[1]["is_reachable"], _READY_SECONDS, pause=0.2)
    before, taken = client.ask("GET", _LIMITS)[1], []
    for _ in range(rounds):
        started_at = time.perf_counter()
        done = subprocess.run(words, input="ls\n", capture_output=True, text=True, timeout=60, check=False)
        taken.append(time.perf_counter() - started_at)
        if done.returncode or _FOLDER not in done.stdout:
            raise RuntimeError(f"the folders did not open: {done.stdout}{done.stderr}")
        if client.ask("GET", _LIMITS)[1] != before:
            raise RuntimeError("the session that opens folders counts against a limit")
        say(f"  folders from nothing: {taken[-1]:.1f}")
        for one in client.ask("GET", "/api/v1/sessions/?type=system")[1]["results"]:
            if one["type"] == "system" and one["status"] == "RUNNING":  # those of earlier rounds have ended
                client.end(one["id"])
                wait_until(lambda pk=one["id"]: client.status(pk) == "TERMINATED", _READY_SECONDS, pause=0.2)
    return round(statistics.median(taken), 2)


def gate_of(portal: Portal) -> psutil.Process:
    """Return the process of the gate."""
    return portal.processes()["sshgate"]


def _new_key(folder: Path, number: int) -> Path:
    path = folder / f"id-{number}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def _session_of(person: Client, key: Path) -> str:
    added = {"public_key": Path(f"{key}.pub").read_text(), "name": "bench"}
    wish = {"image": "python", "name": "rest", "resources": {"cpu": "1", "mem": "256m"}}
    for path, body in (("/api/v1/me/ssh-keys/", added), ("/api/v1/sessions/", wish)):
        status, answer = person.ask("POST", path, body)
        if status != 201:
            raise RuntimeError(f"{path} was answered with {status}: {answer}")
    return str(answer["id"])


async def _grown(portal: Portal, port: int, keys: list[Path], connections: int) -> int:
    """Return by how many bytes the gate grows; one connection of each person is there before."""
    async with contextlib.AsyncExitStack() as open_ones:

        async def log_in(number: int) -> asyncssh.SSHClientConnection:
            opening = asyncssh.connect(
                "127.0.0.1", port, username="rest", known_hosts=None, client_keys=[keys[number % len(keys)]],
                config=None, agent_path=None,
            )  # fmt: skip
            return await open_ones.enter_async_context(opening)

        for number in range(len(keys)):
            await (await log_in(number)).run("true")
        await asyncio.sleep(_SETTLE_SECONDS)
        measure: Callable[[], int] = lambda: gate_of(portal).memory_info().rss  # noqa: E731
        before = measure()
        logins = [await log_in(number) for number in range(connections - len(keys))]
        await asyncio.sleep(_SETTLE_SECONDS)
        if closed := sum(one.is_closed() for one in logins):
            raise RuntimeError(f"{closed} of {connections} connections were cut")
        return (measure() - before) * connections // len(logins)
