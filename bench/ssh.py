"""The SSH gate beside OpenSSH's own server on loopback: logins, echo, copies, connections at rest, folders.

bin/bench ssh [--json] [--rounds N] [--megabytes N] [--files N] [--connections N]

Behind the gate is a native session, so that both sides run programs of this machine. The ways take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh

from bench._command import command, show
from bench._events import Events
from bench._portal import NATIVE, Client, Portal, end_all, free_port, running_portal, say, wait_until

_ECHOES = 200
_MOST_PER_PERSON = 32
_READY_SECONDS, _SETTLE_SECONDS = 60.0, 5.0
_FOLDER, _LIMITS = "bench-data", "/api/v1/me/limits/"
_NAME = "bench-ssh"


@dataclass(frozen=True)
class Way:
    """A server of SSH, the user there, and where copies go."""

    port: int
    user: str
    target: str
    folder: Path

    def words(self, program: str, *options: str) -> list[str]:
        """Return the beginning of a command of OpenSSH."""
        told = {"IdentityFile": self.folder / "id", "IdentitiesOnly": "yes", "BatchMode": "yes", "LogLevel": "ERROR"}
        told |= {"UserKnownHostsFile": "/dev/null", "StrictHostKeyChecking": "no"}
        port = "-P" if program == "sftp" else "-p"
        return [program, "-F", "none", port, str(self.port), *(f"-o{key}={one}" for key, one in told.items()), *options]

    @property
    def address(self) -> str:
        """The user at this machine."""
        return f"{self.user}@127.0.0.1"


def main() -> None:
    """Measure and print."""
    numbers = {"rounds": (3, "turns of each way"), "megabytes": (100, "size of the copied file")}
    numbers |= {"files": (10_000, "small files for rsync"), "connections": (200, "connections at rest")}
    options = command("ssh", __doc__, numbers).parse_args()
    show(options, run(options.rounds, options.megabytes, options.files, options.connections))


def run(rounds: int, megabytes: int, files: int, connections: int) -> dict[str, float]:
    """Return the figures, measured on a platform of its own."""
    say("starting a platform ...")
    with running_portal("sqlite", NATIVE) as portal:
        folder = portal.data.parent
        _new_key(folder / "id")
        events, session_id = Events(portal.port, portal.token), _launch(portal, folder)
        try:
            events.time_of(session_id, "RUNNING")
            with _sshd(folder) as port:
                ways = {
                    "gate": Way(_gate_port(folder), _NAME, "", folder),
                    "sshd": Way(port, getpass.getuser(), f"{folder}/far/", folder),
                }
                # First: what transfers have used and freed would be used again, and be missing from the figure.
                at_rest = {"gate_kib_per_connection": _kib_at_rest(portal, ways["gate"].port, folder, connections)}
                first = {"gate_first_login_ms": round(_login(ways["gate"]))}  # starts the guest of the session
                figures = at_rest | first | _measure(ways, rounds, _sources(folder, megabytes, files), megabytes)
            gate = replace(ways["gate"], user="folders")
            opening = [*gate.words("sftp", "-b", "-"), gate.address]
            figures["folders_from_nothing_s"] = _folders_from_nothing(portal, opening, rounds)
            return figures
        finally:
            end_all(portal.client(), events, [session_id])


def _measure(ways: dict[str, Way], rounds: int, sources: tuple[Path, Path], megabytes: int) -> dict[str, float]:
    big, tree = sources
    measures: dict[str, Callable[[Way], float]] = {
        "login_ms": _login,
        "multiplexed_ms": _multiplexed,
        "echo_ms": _echo,
        "terminal_echo_ms": lambda way: _echo(way, "-tt"),
        "put_mb_per_s": lambda way: megabytes / _sftp(way, f"put {big} {way.target}big"),
        "get_mb_per_s": lambda way: megabytes / _sftp(way, f"get {way.target}big {big}.back"),
        "rsync_s": lambda way: _rsync(way, tree),
    }
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for kind, measure in measures.items():
            for name in list(ways) if number % 2 else reversed(list(ways)):
                found.setdefault(f"{name}_{kind}", []).append(measure(ways[name]))
                say(f"  {name} {kind}: {found[f'{name}_{kind}'][-1]:.1f}")
    figures = {name: round(statistics.median(values), 2) for name, values in sorted(found.items())}
    for kind in measures:
        figures[f"gate_by_sshd_{kind}"] = round(figures[f"gate_{kind}"] / figures[f"sshd_{kind}"], 2)
    return figures


def _time(command: list[str], given: str = "") -> float:
    started_at = time.perf_counter()
    done = subprocess.run(command, input=given, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return time.perf_counter() - started_at


def _login(way: Way) -> float:
    """Return the milliseconds of a command over a new connection."""
    return 1000 * _time([*way.words("ssh"), way.address, "true"])


def _sftp(way: Way, command: str) -> float:
    return _time([*way.words("sftp", "-b", "-"), way.address], command + "\n")


def _multiplexed(way: Way) -> float:
    """Return the milliseconds of one more command over a connection that is there."""
    socket = way.folder / f"master-{way.port}"
    shared = way.words("ssh", f"-oControlPath={socket}")
    master = subprocess.Popen([*shared, "-M", "-N", way.address])
    try:
        wait_until(socket.exists, _READY_SECONDS, pause=0.02)
        return 1000 * statistics.median(_time([*shared, way.address, "true"]) for _ in range(10))
    finally:
        master.terminate()
        master.wait()


def _echo(way: Way, *options: str, number: int = _ECHOES) -> float:
    """Return the milliseconds until a letter comes back from ``cat``, with ``-tt`` from its terminal."""
    command = [*way.words("ssh", *options), way.address, "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as far:
        assert far.stdin is not None and far.stdout is not None
        taken = []
        for _ in range(number):
            started_at = time.perf_counter()
            far.stdin.write(b"x")
            far.stdout.read(1)
            taken.append(time.perf_counter() - started_at)
        far.stdin.write(b"\n\x04" if options else b"")  # a terminal does not end with the client's input
        far.stdin.close()
        far.stdout.read()
    return 1000 * statistics.median(taken[1:])  # the first one waits for the login


def _rsync(way: Way, tree: Path) -> float:
    """Return the seconds in which a tree of small files is copied for the first time."""
    target = f"{way.target}tree-{time.time_ns()}/"
    return _time(["rsync", "-a", "-e", " ".join(way.words("ssh")), f"{tree}/", f"{way.address}:{target}"])


def _sources(folder: Path, megabytes: int, files: int) -> tuple[Path, Path]:
    big, tree = folder / "big", folder / "tree"
    big.write_bytes(os.urandom(megabytes * 1_000_000))
    tree.mkdir()
    for number in range(files):
        (tree / f"{number:05}").write_bytes(os.urandom(1000))
    return big, tree


def _launch(portal: Portal, folder: Path) -> str:
    client = portal.client()
    client.create("me/ssh-keys", {"public_key": (folder / "id.pub").read_text(), "name": "bench"})
    return client.launch(image="python", name=_NAME, resources={"cpu": "2", "mem": "1g"})


def _gate_port(folder: Path) -> int:
    found = re.search(r"ssh -p (\d+) SESSION@", (folder / "up.log").read_text())
    if found is None:
        raise RuntimeError("the platform did not say on which port SSH is")
    return int(found[1])


@contextlib.contextmanager
def _sshd(folder: Path) -> Iterator[int]:
    """OpenSSH's server for the same key; gives its port."""
    program, port = shutil.which("sshd") or "/usr/sbin/sshd", free_port()
    _new_key(folder / "host")
    (folder / "far").mkdir()
    Path("/run/sshd").mkdir(exist_ok=True)  # of its own privilege separation, as root
    told = {"Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none", "UsePAM": "no"}
    told |= {"AuthorizedKeysFile": folder / "id.pub", "StrictModes": "no", "Subsystem": "sftp internal-sftp"}
    told["SetEnv"] = "SHLVL=2"  # else bash reads the start files of the account, which the session has not
    options = [word for key, one in told.items() for word in ("-o", f"{key}={one}")]
    server = subprocess.Popen([program, "-D", "-e", "-f", "/dev/null", *options], stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def _kib_at_rest(portal: Portal, port: int, folder: Path, connections: int) -> float:
    """Return the KiB that a connection at rest costs the gate: each of as many people as it takes has connections to a
    session of their own."""
    number = -(-connections // _MOST_PER_PERSON)
    people = [Client(portal.port, token) for token in portal.people(number)]
    keys = [_new_key(folder / f"id-{number}") for number in range(len(people))]
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


def _folders_from_nothing(portal: Portal, words: list[str], rounds: int) -> float:
    """Return the median seconds from nothing to the list of one's folders. Raises RuntimeError when the session that
    opens them counts against a limit."""
    client = portal.client()
    made = client.create("folders", {"name": _FOLDER})["id"]
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


def _new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def _session_of(person: Client, key: Path) -> str:
    person.create("me/ssh-keys", {"public_key": Path(f"{key}.pub").read_text(), "name": "bench"})
    return person.launch(image="python", name="rest", resources={"cpu": "1", "mem": "256m"})


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
        measure: Callable[[], int] = lambda: portal.processes()["sshgate"].memory_info().rss  # noqa: E731
        before = measure()
        logins = [await log_in(number) for number in range(connections - len(keys))]
        await asyncio.sleep(_SETTLE_SECONDS)
        if closed := sum(one.is_closed() for one in logins):
            raise RuntimeError(f"{closed} of {connections} connections were cut")
        return (measure() - before) * connections // len(logins)


if __name__ == "__main__":
    main()
