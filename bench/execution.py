"""Running code beside jupyter_client in the same session: 1+1 by REST and websocket, a million lines, the first run.

bin/bench execution [--json] [--rounds N] [--lines N] [--only short]

The session is a native one. ipykernel is installed in it, so that both sides run the same interpreter; the ways take
turns. The first run is measured in a session for each.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench._command import command, show
from bench._events import Events, Socket
from bench._portal import NATIVE, Portal, end_all, running_portal, say

_PROBE = Path(__file__).parent / "_execution_probe.py"
_INSTALL = "python3 -m pip install --user --quiet --break-system-packages ipykernel"
_RESOURCES = {"cpu": "2", "mem": "2g"}
_ENDED = ("FINISHED", "LOST", "CANCELLED")
_RUNS = 40
_FIRST = 3


def main() -> None:
    """Measure and print."""
    numbers = {"rounds": (5, "turns of each way"), "lines": (1_000_000, "lines that are printed")}
    parser = command("execution", __doc__, numbers)
    parser.add_argument("--only", choices=["short"], help="1+1 alone")
    options = parser.parse_args()
    show(options, run(options.rounds, options.lines, only_short=options.only == "short"))


def run(rounds: int, lines: int, *, only_short: bool = False) -> dict[str, float]:
    """Return the figures, measured on a platform of its own."""
    say("starting a platform ...")
    with running_portal("sqlite", {**NATIVE, "BACKENDAI_AGENT_SLOTS": "cpu=16,mem=16g"}) as portal:
        events, session_ids = Events(portal.port, portal.token), list[str]()

        def session() -> Session:
            session_ids.append(portal.client().launch(image="python", resources=_RESOURCES))
            events.time_of(session_ids[-1], "RUNNING")
            return Session(portal, session_ids[-1])

        try:
            here = session()
            here.batch(_INSTALL)
            here.send_file("probe.py", _PROBE.read_bytes())
            short = _short_runs(here, rounds)
            return short if only_short else short | _much_output(here, lines) | _first_runs(here, session)
        finally:
            end_all(portal.client(), events, session_ids)


class Session:
    """A session in which code runs."""

    def __init__(self, portal: Portal, session_id: str) -> None:
        self._portal, self._id = portal, session_id
        self._client, self._path = portal.client(), f"/api/v1/sessions/{session_id}/"

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Return the answer to a call about this session."""
        status, answer = self._client.ask(method, self._path + path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path} was answered with {status}: {answer}")
        return dict(answer)

    def query(self, code: str, wait: float = 20) -> dict[str, Any]:
        """Run code; returns the run with its items when it has ended."""
        return self._ended(self.ask("POST", "runs/", {"code": code, "wait": wait}))

    def batch(self, command: str) -> str:
        """Run a command; returns what it printed."""
        told = self._ended(self.ask("POST", "runs/", {"code": command, "mode": "batch", "wait": 20}))
        if told["exit_code"]:
            raise RuntimeError(f"{command} ended with {told['exit_code']}: {told['items']}")
        return "".join(item.get("text", "") for item in told["items"])

    def probe(self, what: str, count: int) -> dict[str, Any]:
        """Have jupyter_client do it in the session; returns its figures."""
        return dict(json.loads(self.batch(f"python3 probe.py {what} {count}").splitlines()[-1]))

    def send_file(self, name: str, content: bytes) -> None:
        """Write a file into its home folder."""
        self.batch(f"cat > {name} <<'END'\n{content.decode()}\nEND")

    def socket(self) -> Socket:
        """Return the websocket of its runs, attached."""
        opened = Socket(self._portal.port, f"/ws/sessions/{self._id}/runs/", self._portal.token)
        opened.send(json.dumps({"type": "attach", "after": {}}))
        return opened

    def _ended(self, told: dict[str, Any]) -> dict[str, Any]:
        items = list(told["items"])
        while told["state"] not in _ENDED or told["offset"] < told["end"]:
            told = self.ask("GET", f"runs/{told['run_id']}/?wait=20&after={told['offset']}")
            items += told["items"]
        return {**told, "items": items}


def _short_runs(here: Session, rounds: int) -> dict[str, float]:
    socket = here.socket()
    here.query("1+1")
    ways: dict[str, Callable[[], list[float]]] = {
        "rest": lambda: [_seconds(lambda: here.query("1+1")) for _ in range(_RUNS)],
        "websocket": lambda: [_by_socket(socket) for _ in range(_RUNS)],
        "jupyter_client": lambda: list(here.probe("short", _RUNS)["seconds"]),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(list(ways)):
            times[name] += ways[name]()
    socket.close()
    say("  1+1: " + ", ".join(f"{name} {statistics.median(taken) * 1000:.1f} ms" for name, taken in times.items()))
    return {f"run_{name}_ms_p50": round(statistics.median(taken) * 1000, 2) for name, taken in times.items()}


def _seconds(do: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    do()
    return time.perf_counter() - started_at


def _by_socket(socket: Socket) -> float:
    name = f"r{time.monotonic_ns()}"
    started_at = time.perf_counter()
    socket.send(json.dumps({"type": "run", "id": 1, "run_id": name, "code": "1+1"}))
    while True:
        told = json.loads(socket.receive().data)
        if told["type"] == "run" and told["run_id"] == name and told["state"] in _ENDED:
            return time.perf_counter() - started_at


def _much_output(here: Session, lines: int) -> dict[str, float]:
    figures: dict[str, list[float]] = {"platform": [], "jupyter_client": []}
    lost = {"platform": 0, "jupyter_client": 0}
    code = f"for number in range({lines}): print('line', number, flush=True)"
    for _ in range(2):
        started_at = time.perf_counter()
        told = here.query(code)
        figures["platform"].append(lines / (time.perf_counter() - started_at))
        lost["platform"] += lines - sum(item.get("text", "").count("\n") for item in told["items"])
        theirs = here.probe("lines", lines)
        figures["jupyter_client"].append(lines / theirs["seconds"])
        lost["jupyter_client"] += theirs["lost"]
    rates = {name: round(statistics.median(taken)) for name, taken in figures.items()}
    say(f"  lines per second: {rates}; lost: {lost}")
    return {
        **{f"lines_{name}_per_s": rate for name, rate in rates.items()},
        **{f"lines_{name}_lost": count for name, count in lost.items()},
    }


def _first_runs(here: Session, session: Callable[[], Session]) -> dict[str, float]:
    ours, theirs = [], []
    for _ in range(_FIRST):
        fresh = session()
        fresh.batch(_INSTALL)
        fresh.ask("POST", "contexts/", {"name": "fresh"})
        ours.append(_seconds(lambda one=fresh: one.query("1+1")))
        theirs.append(float(here.probe("start", 1)["seconds"]))
    say(f"  first run: {statistics.median(ours):.2f} s, jupyter_client {statistics.median(theirs):.2f} s")
    return {
        "first_run_s": round(statistics.median(ours), 3),
        "first_run_jupyter_client_s": round(statistics.median(theirs), 3),
    }


if __name__ == "__main__":
    main()
