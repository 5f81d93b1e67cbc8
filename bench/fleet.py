"""How many sessions a second the platform starts and ends, with simulated nodes.

bin/bench fleet [--json] [--agents N] [--rate N] [--live N] [--seconds N] [--cores 0,1]

PostgreSQL, Redis, web, control, beat and the simulated nodes are processes of the benchmark's own. Batch sessions are
written to the queue in bulk, without the checks of a launch; everything after that is the platform's own way:
scheduler pass, node API, reports, logs, ledger, history, browser events. At the end every session must have ended with
success, the ledger must be empty and the audit clean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from backendai.ops.run import fleet as processes
from bench._command import command, show
from bench._in_process import answers, own_redis
from bench._portal import ROOT, free_port, own_postgres, say, wait_until

_START = "import django; django.setup(); from bench._fleet import main; main()"
_MANAGE = [sys.executable, str(ROOT / "manage.py")]
_END_SECONDS = 240.0


def main() -> None:
    """Measure and print."""
    numbers = {"agents": (1_000, "simulated agents"), "rate": (160.0, "sessions written each second")}
    numbers |= {"live": (5_000, "sessions that live at once"), "warm": (60.0, "seconds before the measurement")}
    parser = command("fleet", __doc__, numbers | {"seconds": (40.0, "seconds of the measurement")})
    parser.add_argument("--cores", default="", metavar="LIST", help="let everything run on these cores only")
    chosen = parser.parse_args()
    if chosen.cores:
        os.sched_setaffinity(0, {int(core) for core in chosen.cores.split(",")})
    show(chosen, run(chosen))


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one platform with this load."""
    with tempfile.TemporaryDirectory(prefix="backendai-bench-") as name, contextlib.ExitStack() as leaving:
        folder = Path(name)
        folder.chmod(0o755)
        platform = _Platform(folder, leaving)
        token = platform.ask("prepare")["token"]
        platform.start_portal()
        joined = platform.start_nodes(chosen.agents, token)
        say(f"{chosen.agents} agents joined in {joined:.1f} s")
        run_seconds = chosen.live / chosen.rate
        say(f"feeding {chosen.rate:g} sessions a second that run for {run_seconds:.1f} s ...")
        warm = platform.ask(f"feed {chosen.rate} {chosen.warm} {run_seconds}")
        say(f"warm: {warm}")
        before, mark = platform.cpu_seconds(), time.monotonic()
        found = platform.ask(f"feed {chosen.rate} {chosen.seconds} {run_seconds}")
        spent = {name: used - before.get(name, 0.0) for name, used in platform.cpu_seconds().items()}
        say(f"measured: {found}")
        passes = platform.passes(since=mark)
        say(f"slowest passes, in seconds: {sorted(passes)[-6:]}")
        left = platform.ask(f"end {_END_SECONDS}")
        audit = subprocess.run([*_MANAGE, "audit"], env=platform.environment, capture_output=True, text=True, cwd=ROOT)
        return _figures(chosen, joined, found, spent, passes) | left | {"audit_clean": audit.returncode == 0}


class _Platform:
    """The processes, which end with the stack."""

    def __init__(self, folder: Path, leaving: contextlib.ExitStack) -> None:
        self._folder, self._leaving = folder, leaving
        self._port = free_port()
        choice = processes.Choice("127.0.0.1", self._port, folder / "data", 0, "simulated")
        self._choice = choice
        choice.data.mkdir()
        redis_url = leaving.enter_context(own_redis(folder))
        self.environment = {
            **os.environ,
            **processes.environment(choice, redis_url),
            "DATABASE_URL": leaving.enter_context(own_postgres(folder)),
            "DJANGO_SETTINGS_MODULE": "bench.many_agents.settings",
            "BENCH_PASSES": str(folder / "passes"),
            "PYTHONPATH": str(ROOT),
        }
        self._running = {one.name(): one for one in psutil.Process().children()}
        self._feeder = self._start("feeder", [sys.executable, "-c", _START], talking=True)

    def ask(self, command: str) -> dict[str, Any]:
        """Return the answer of the process that feeds the queue."""
        assert self._feeder.stdin and self._feeder.stdout
        self._feeder.stdin.write(f"{command}\n".encode())
        self._feeder.stdin.flush()
        answer: dict[str, Any] = json.loads(self._feeder.stdout.readline())
        return answer

    def start_portal(self) -> None:
        """Start web, control and beat."""
        subprocess.run([*_MANAGE, "prepare"], env=self.environment, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        self._start("web", list(processes.web_program(self._choice).command))
        for program in processes.control_programs():
            words = ["bench._timed_control" if word == "backendai.celery" else word for word in program.command]
            self._start(program.name, words)
        wait_until(lambda: answers(self._port), 60, pause=0.1)

    def start_nodes(self, number: int, token: str) -> float:
        """Start the simulated nodes; returns the seconds until all of them are alive."""
        started_at = time.monotonic()
        words = ["--agents", str(number), "--join", f"http://127.0.0.1:{self._port}", "--token", token]
        capacity = ["--capacity", "cpu=8,mem=64g,cuda.device=8"]
        self._start(
            "nodes",
            [sys.executable, "-m", "bench.many_agents.simulate", *words, *capacity],
            without=("DJANGO_SETTINGS_MODULE",),
        )
        wait_until(lambda: self.ask("agents")["alive"] == number, 300, pause=0.5)
        return time.monotonic() - started_at

    def cpu_seconds(self) -> dict[str, float]:
        """Return what each process has used so far, its children included."""
        found = {}
        for name, process in self._running.items():
            family = [process, *process.children(recursive=True)]
            found[name] = sum(sum(one.cpu_times()[:4]) if one is process else _own(one) for one in family)
        return found

    def passes(self, *, since: float) -> list[float]:
        """Return the seconds of each pass since then."""
        lines = [line.split() for line in (self._folder / "passes").read_text().splitlines()]
        return [float(seconds) for end, seconds, _ in lines if float(end) >= since]

    def _start(
        self, name: str, command: list[str], *, talking: bool = False, without: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        told = {key: value for key, value in self.environment.items() if key not in without}
        logs = self._folder / f"{name}.log"
        pipe = subprocess.PIPE if talking else subprocess.DEVNULL
        with logs.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=told, stdin=pipe, stdout=subprocess.PIPE if talking else log, stderr=log
            )
        self._leaving.callback(_end, process)
        self._running[name] = psutil.Process(process.pid)
        return process


def _own(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:
        return 0.0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    process.kill()
    process.wait()


def _figures(
    chosen: argparse.Namespace,
    joined: float,
    found: Mapping[str, Any],
    spent: Mapping[str, float],
    passes: list[float],
) -> dict[str, Any]:
    seconds, done = found["seconds"], min(found["started"], found["ended"])
    ordered = sorted(passes)
    return {
        "simulated_sessions_per_s": round(done / seconds, 1),
        "pass_p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000, 1) if ordered else None,
        "pass_median_ms": round(ordered[len(ordered) // 2] * 1000, 1) if ordered else None,
        "passes": len(ordered),
        "agents": chosen.agents,
        "live": round(found["live_mean"]),
        "live_least": found["live_least"],
        "pending_most": found["pending_most"],
        "sustained_s": round(seconds, 1),
        "joined_s": round(joined, 1),
        "cpu_cores": {name: round(used / seconds, 2) for name, used in spent.items()},
        "cpu_ms_per_session": round(sum(spent.values()) / max(done, 1) * 1000, 2),
    }


if __name__ == "__main__":
    main()
