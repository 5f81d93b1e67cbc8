"""The SSH gate beside OpenSSH's own server on loopback: logins, echo, copies, connections at rest, folders.

bin/bench ssh [--json] [--rounds N] [--megabytes N] [--files N] [--connections N]

Behind the gate is a native session, so that both sides run programs of this machine. The ways take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench._events import Events
from bench._portal import Portal, end_all, free_port, running_portal, say, wait_until
from bench._ssh_people import folders_from_nothing, kib_at_rest

_ECHOES, _PROFILED = 200, 3000
_READY_SECONDS = 20.0
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
    parser = argparse.ArgumentParser(prog="bin/bench ssh", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each way (3)")
    parser.add_argument("--megabytes", type=int, default=100, metavar="N", help="size of the copied file (100)")
    parser.add_argument("--files", type=int, default=10_000, metavar="N", help="small files for rsync (10000)")
    parser.add_argument("--connections", type=int, default=200, metavar="N", help="connections at rest (200)")
    options = parser.parse_args()
    figures = run(options.rounds, options.megabytes, options.files, options.connections)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value}")


def run(rounds: int, megabytes: int, files: int, connections: int) -> dict[str, float]:
    """Return the figures, measured on a platform of its own."""
    say("starting a platform ...")
    native = {"BACKENDAI_AGENT_BACKEND": "process", "BACKENDAI_AGENT_ENVIRONMENTS": "off"}
    with running_portal("sqlite", native) as portal:
        folder = portal.data.parent
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
        events, session_id = Events(portal.port, portal.token), _launch(portal, folder)
        try:
            events.time_of(session_id, "RUNNING")
            with _sshd(folder) as port:
                ways = {
                    "gate": Way(_gate_port(folder), _NAME, "", folder),
                    "sshd": Way(port, getpass.getuser(), f"{folder}/far/", folder),
                }
                # First: what transfers have used and freed would be used again, and be missing from the figure.
                at_rest = {"gate_kib_per_connection": kib_at_rest(portal, ways["gate"].port, folder, connections)}
                first = {"gate_first_login_ms": round(_login(ways["gate"]))}  # starts the guest of the session
                figures = at_rest | first | _measure(ways, rounds, _sources(folder, megabytes, files), megabytes)
                figures |= _profile(portal, ways["gate"], session_id)
            gate = replace(ways["gate"], user="folders")
            opening = [*gate.words("sftp", "-b", "-"), gate.address]
            figures["folders_from_nothing_s"] = folders_from_nothing(portal, opening, rounds)
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


def _profile(portal: Portal, way: Way, session_id: str) -> dict[str, float]:
    """Return the milliseconds of processor time that an echo takes in each of our processes."""
    running = portal.processes()
    processes = {"gate": running["sshgate"], "agent": running["agent"], "guest": _guest_of(session_id)}
    before = {name: sum(one.cpu_times()[:2]) for name, one in processes.items()}
    _echo(way, number=_PROFILED)
    used = {name: sum(one.cpu_times()[:2]) - before[name] for name, one in processes.items()}
    return {f"echo_{name}_cpu_ms": round(1000 * spent / _PROFILED, 3) for name, spent in used.items()}


def _guest_of(session_id: str) -> psutil.Process:
    """Return the guest of the session's kernel, which has the session in its environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_guest = any(word.endswith("guest.pyz") for word in process.cmdline())
            if is_guest and process.environ().get("BACKENDAI_SESSION_ID") == session_id:
                return process
    raise RuntimeError("the session has no guest")


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
    key = {"public_key": (folder / "id.pub").read_text(), "name": "bench"}
    wish = {"image": "python", "name": _NAME, "resources": {"cpu": "2", "mem": "1g"}}
    for path, body in (("/api/v1/me/ssh-keys/", key), ("/api/v1/sessions/", wish)):
        status, answer = client.ask("POST", path, body)
        if status != 201:
            raise RuntimeError(f"{path} was answered with {status}: {answer}")
    return str(answer["id"])


def _gate_port(folder: Path) -> int:
    found = re.search(r"ssh -p (\d+) SESSION@", (folder / "up.log").read_text())
    if found is None:
        raise RuntimeError("the platform did not say on which port SSH is")
    return int(found[1])


@contextlib.contextmanager
def _sshd(folder: Path) -> Iterator[int]:
    """OpenSSH's server for the same key; gives its port."""
    program, port = shutil.which("sshd") or "/usr/sbin/sshd", free_port()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"], check=True)
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


if __name__ == "__main__":
    main()
