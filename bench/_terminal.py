"""A terminal in the browser against the engine's own exec: one key's echo, much output, and a flood that is cut."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import socket
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator

import docker
from websockets.frames import Opcode

from bench._events import Events, Socket
from bench._portal import Portal, end_all, free_port, say

_KEYS_PER_LINE = 40
_OUTPUT_BYTES = 50_000_000
_LINE = "x" * 78
_FLOOD_SECONDS = 2.0
_SILENCE_SECONDS = 1.0
_ACKNOWLEDGE_EVERY = 65536


class Direct:
    """A shell in the container over the engine's exec socket."""

    def __init__(self, container: str) -> None:
        client = docker.APIClient(version="auto", timeout=60)
        made = client.exec_create(container, ["sh"], stdin=True, tty=True, environment={"TERM": "xterm-256color"})
        self._stream = client.exec_start(made["Id"], tty=True, socket=True)
        self._socket: socket.socket = self._stream._sock
        self._socket.settimeout(30)

    def send(self, data: bytes) -> None:
        """Type."""
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Return the next output."""
        return self._socket.recv(65536)

    def has_more(self, seconds: float) -> bool:
        """Return whether output comes within that time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        """End the shell."""
        self.send(b"\x03\nexit\n")
        self._stream.close()


class ThroughPortal:
    """A shell in the container over the portal's websocket; acknowledges what it reads, as the browser does."""

    def __init__(self, portal: Portal, session_id: str) -> None:
        self._socket = Socket(portal.port, f"/ws/sessions/{session_id}/terminal/?rows=24&cols=200", portal.token)
        self._unacknowledged = 0

    def send(self, data: bytes) -> None:
        """Type."""
        self._socket.send(data)

    def read(self) -> bytes:
        """Return the next output."""
        while (frame := self._socket.receive()).opcode is not Opcode.BINARY:
            pass
        self._unacknowledged += len(frame.data)
        if self._unacknowledged >= _ACKNOWLEDGE_EVERY:
            self._socket.send(json.dumps({"type": "ack", "bytes": self._unacknowledged}))
            self._unacknowledged = 0
        return bytes(frame.data)

    def has_more(self, seconds: float) -> bool:
        """Return whether output comes within that time."""
        return self._socket.has_frame(seconds)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class ThroughTtyd:
    """A shell in the container over ttyd, which runs ``docker exec``: the usual way to put a terminal into a page."""

    def __init__(self, container: str) -> None:
        port = free_port()
        command = ["ttyd", "--port", str(port), "--interface", "127.0.0.1", "--writable"]
        # Its own log of every connection would be part of what is measured.
        self._process = subprocess.Popen(
            [*command, "docker", "exec", "-it", container, "sh"], stderr=subprocess.DEVNULL
        )
        self._socket = _answering(port)
        self._socket.send(json.dumps({"AuthToken": "", "columns": 200, "rows": 24}).encode())

    def send(self, data: bytes) -> None:
        """Type."""
        self._socket.send(b"0" + data)

    def read(self) -> bytes:
        """Return the next output; nothing if it is a title or the like."""
        data = bytes(self._socket.receive().data)
        return data[1:] if data[:1] == b"0" else b""

    def has_more(self, seconds: float) -> bool:
        """Return whether output comes within that time."""
        return self._socket.has_frame(seconds)

    def close(self) -> None:
        """End the shell and ttyd."""
        self._socket.close()
        self._process.terminate()
        self._process.wait(10)


def _answering(port: int) -> Socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return Socket(port, "/ws", "", speaking="tty")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


Shell = Direct | ThroughPortal | ThroughTtyd


def measure(portal: Portal, events: Events, keys: int) -> dict[str, float]:
    """Return the terminal's figures, measured in a session of its own."""
    client = portal.client()
    session_id = client.launch()
    events.time_of(session_id, "RUNNING")
    container = client.ask("GET", f"/api/v1/sessions/{session_id}/")[1]["kernels"][0]["container_id"]
    try:
        return _echo(portal, session_id, container, keys) | _output(portal, session_id, container)
    finally:
        end_all(client, events, [session_id])


def _echo(portal: Portal, session_id: str, container: str, keys: int) -> dict[str, float]:
    times: dict[str, list[float]] = defaultdict(list)
    with _shells(portal, session_id, container, with_ttyd=True) as shells:
        for number in range(keys + _KEYS_PER_LINE):
            turns = list(shells.items())
            for name, shell in turns if number % 2 else reversed(turns):
                if number % _KEYS_PER_LINE == 0:
                    shell.send(b"\x15")  # an empty line again
                    _drain(shell, 0.2)
                seconds = _echo_once(shell)
                if number >= _KEYS_PER_LINE:
                    times[name].append(seconds)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    say("  echo of a key: " + ", ".join(f"{name} {median * 1000:.2f} ms" for name, median in medians.items()))
    platform = medians["platform"]
    to_ttyd = {"echo_ratio_ttyd_p50": round(platform / medians["ttyd"], 3)} if "ttyd" in medians else {}
    return {
        "echo_ratio_p50": round(platform / medians["direct"], 3),
        **to_ttyd,
        **{f"echo_{name}_ms_p50": round(median * 1000, 3) for name, median in medians.items()},
    }


def _echo_once(shell: Shell) -> float:
    started_at = time.perf_counter()
    shell.send(b"x")
    while b"x" not in shell.read():
        pass
    return time.perf_counter() - started_at


def _output(portal: Portal, session_id: str, container: str) -> dict[str, float]:
    rates: dict[str, list[float]] = {"platform": [], "direct": []}
    with _shells(portal, session_id, container) as shells:
        lines = f"yes {_LINE} | head -c {_OUTPUT_BYTES} >lines; echo made\n"
        _until(shells["direct"], lines.encode(), b"\nmade")
        for _ in range(3):
            for name, shell in shells.items():
                rates[name].append(_megabytes_per_second(shell))
        left = _after_interrupt(shells["platform"])
    rate, direct = statistics.median(rates["platform"]), statistics.median(rates["direct"])
    say(f"  output: platform {rate:.1f} MB/s, engine {direct:.1f} MB/s; after Ctrl-C {left} bytes")
    return {
        "output_mb_s": round(rate, 1),
        "output_direct_mb_s": round(direct, 1),
        "output_ratio": round(rate / direct, 3),
        "after_interrupt_bytes": left,
    }


def _megabytes_per_second(shell: Shell) -> float:
    started_at = time.perf_counter()
    count = _until(shell, b"stty -opost; cat lines; stty opost; printf '\\nall\\055there\\n'\n", b"\nall-there")
    return count / (time.perf_counter() - started_at) / 1e6


def _after_interrupt(shell: Shell) -> int:
    """Return the bytes that still come after Ctrl-C has been sent into a flood that is read all the time."""
    shell.send(b"yes\n")
    deadline = time.monotonic() + _FLOOD_SECONDS
    while time.monotonic() < deadline:
        shell.read()
    shell.send(b"\x03")
    return _drain(shell, _SILENCE_SECONDS)


def _until(shell: Shell, command: bytes, mark: bytes) -> int:
    """Run a command and return how many bytes came before the mark was seen."""
    shell.send(command)
    count, tail = 0, b""
    while mark not in tail:
        data = shell.read()
        count += len(data)
        tail = (tail + data)[-65536 - len(mark) :]
    return count


def _drain(shell: Shell, silence: float) -> int:
    count = 0
    while shell.has_more(silence):
        count += len(shell.read())
    return count


@contextlib.contextmanager
def _shells(portal: Portal, session_id: str, container: str, *, with_ttyd: bool = False) -> Iterator[dict[str, Shell]]:
    """ttyd takes part where it is installed."""
    shells: dict[str, Shell] = {"platform": ThroughPortal(portal, session_id), "direct": Direct(container)}
    if with_ttyd and shutil.which("ttyd"):
        shells["ttyd"] = ThroughTtyd(container)
    try:
        for shell in shells.values():
            _drain(shell, 0.5)
        yield shells
    finally:
        for shell in shells.values():
            shell.close()
