"""A native kernel's supervisor: outlives the agent, keeps the log, limits memory, records the end.

It runs alone (``python -I -S runner.py FOLDER READY_FD``, only the standard library) in its own session, beyond
the agent's end and Ctrl-C in its terminal. In FOLDER it reads ``launch.json`` and, at SIGTERM, ``stop.json``; it writes
``runner.json`` (the kernel runs), ``output.log`` and ``exit.json`` (how it ended).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_MEMORY_INTERVAL = 2.0
_PATIENCE_AFTER_KILL = 5.0
_PATIENCE_FOR_OUTPUT = 1.0
ROOM_FOR_END = 4096  # bytes
_KILLED = 128 + signal.SIGKILL


class KernelRunner:
    """What supervisors of all kinds share: the kernel's files, the report of its start, and the record of its end."""

    def __init__(self, folder: Path, ready: int) -> None:
        self.folder, self.ready = folder, ready
        self.launch: dict[str, Any] = json.loads((folder / "launch.json").read_text())
        self.log = RotatingLog(folder, self.launch["log_bytes"])
        self.end: dict[str, Any] = {}  # the message of the kernel's first process: exited or failed
        self.order: dict[str, Any] | None = None  # the agent's order to stop

    def reserve(self) -> None:
        """Reserve disk space for the record of the end, which has to fit on a full disk."""
        (self.folder / "exit.draft").write_text(" " * ROOM_FOR_END)

    def report_start(self) -> None:
        """Record that the kernel runs, and tell the agent. Raises OSError."""
        write_json(self.folder / "runner.json", {"pid": os.getpid(), "started": start_time(os.getpid())})
        with contextlib.suppress(BrokenPipeError):  # the agent was killed; the next one finds the kernel
            os.write(self.ready, b"started")
        os.close(self.ready)
        self.ready = os.open(os.devnull, os.O_WRONLY)

    def join_cgroups(self) -> None:
        """Move this process into the kernel's control groups."""
        for cgroup in self.launch["cgroups"]:
            Path(cgroup, "cgroup.procs").write_text("0")

    def take_order(self) -> dict[str, Any]:
        """Read and return the order to stop, which is missing after a signal of somebody else or on a full disk."""
        message = "The kernel was ended by a signal to its supervisor."
        self.order = self.order or {"grace": 5.0, "reason": "exited", "message": message}
        with contextlib.suppress(OSError, ValueError):
            self.order = json.loads((self.folder / "stop.json").read_text())
        return self.order

    def ending(self) -> dict[str, Any]:
        """Return the record of the end."""
        usual = {"exit_code": None, "reason": "exited", "message": "", "failed": self.end.get("failed")}
        if self.order is not None:
            usual |= {"reason": self.order["reason"], "message": self.order["message"]}
        return usual | self.special_end()

    def special_end(self) -> dict[str, Any]:
        """Return what differs from a usual end."""
        raise NotImplementedError

    def finish(self) -> None:
        """Record the end, and delete the kernel's traces."""
        write_json(self.folder / "exit.json", self.ending())
        remove_traces(self.launch)
        os.close(self.ready)


class NativeRunner(KernelRunner):
    """Supervises one kernel from its first process to its last."""

    def __init__(self, folder: Path, ready: int) -> None:
        super().__init__(folder, ready)
        self.umask = os.umask(0o077)  # the folder stays traversable for others
        self.kill_at: float | None = None
        self.used = 0  # bytes of memory, if above the limit

    def run(self) -> None:
        """Start the kernel, supervise it until its end, and record the end."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.signalled, signalled = os.pipe()
        os.set_blocking(signalled, False)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda number, frame: self.take_order())
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        try:
            self.reserve()
            self._spawn()
            self._serve()
        except OSError as error:
            self.end = {"failed": str(error)}
        kill_tree()
        self._drain()
        self.finish()

    def _spawn(self) -> None:
        self.output, output = os.pipe()
        self.channel, channel = socket.socketpair()
        environ = keep_in_memory(self.launch["environ"])
        with listen(self.folder / "door.sock") as listener:
            passed = (channel.fileno(), listener.fileno(), environ)
            subprocess.Popen(
                [*self.launch["argv"], *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.launch["environ_outside"],
                cwd="/",
                pass_fds=passed,
                umask=self.umask,
                preexec_fn=self.join_cgroups,
            )
        for file in (output, environ):
            os.close(file)
        channel.close()

    def _serve(self) -> None:
        next_look = time.monotonic() + _MEMORY_INTERVAL
        sources: list[Any] = [self.output, self.channel, self.signalled]
        while not self.end:
            times = [next_look] + ([self.kill_at] if self.kill_at is not None else [])
            ready, _, _ = select.select(sources, [], [], max(0.0, min(times) - time.monotonic()))
            if self.output in ready and not self.log.copy_from(self.output):
                sources.remove(self.output)
            if self.channel in ready:
                self._listen_to_door()
            if self.signalled in ready:
                os.read(self.signalled, 4096)
                reap()
                self._obey()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _MEMORY_INTERVAL
                if self._takes_too_much_memory():
                    return

    def _listen_to_door(self) -> None:
        if not (news := self.channel.recv(65536)):
            self.end = {"exited": _KILLED}  # the door was killed
        for line in news.splitlines():
            message = json.loads(line)
            if "started" in message:
                self.report_start()
            else:
                self.end = message

    def _obey(self) -> None:
        if self.order is None:
            return
        self.kill_at = min(self.kill_at or float("inf"), time.monotonic() + self.order["grace"])
        with contextlib.suppress(OSError):
            self.channel.sendall(b"term\n")

    def _takes_too_much_memory(self) -> bool:
        limit: int | None = self.launch["memory"]
        # Resident bytes count shared pages several times: a cheap upper bound.
        if limit is None or sum(map(resident, pids := descendants())) <= limit:
            return False
        self.used = used if (used := sum(map(proportional, pids))) > limit else 0
        return bool(self.used)

    def _drain(self) -> None:
        deadline = time.monotonic() + _PATIENCE_FOR_OUTPUT
        while time.monotonic() < deadline and select.select([self.output], [], [], _PATIENCE_FOR_OUTPUT)[0]:
            if not self.log.copy_from(self.output):
                return

    def special_end(self) -> dict[str, Any]:
        code = {"exit_code": self.end.get("exited", _KILLED)}
        if self.used:
            return code | {"reason": "out-of-memory", "message": "", "used": self.used, "limit": self.launch["memory"]}
        if self.order is None and (limit := self.launch["cgroup_memory"]) and oom_kills(self.launch["cgroups"]):
            return code | {"starved_at": limit}
        return code


class RotatingLog:
    """The kernel's output in two files, each with half of the allowed size; the oldest bytes are dropped."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.path, self.older, self.dropped = (folder / name for name in ("output.log", "output.log.1", "output.cut"))
        self.half = max(limit // 2, 4096)
        self.file, self.size = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 0

    def copy_from(self, source: int) -> bool:
        """Append the available bytes; returns False at the end of the source."""
        self.append(data := os.read(source, 65536))
        return bool(data)

    def append(self, data: bytes) -> None:
        if self.size and self.size + len(data) > self.half:
            self._rotate()
        with contextlib.suppress(OSError):  # on a full disk output is lost, and the kernel continues
            self.size += os.write(self.file, data)

    def _rotate(self) -> None:
        if self.older.exists():
            self.dropped.touch()
        self.path.rename(self.older)
        os.close(self.file)
        self.file, self.size = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 0


def keep_in_memory(value: dict[str, Any]) -> int:
    """Return a descriptor of an in-memory file with the value as JSON, so that no folder contains it."""
    file = os.memfd_create("environ")
    os.pwrite(file, json.dumps(value).encode(), 0)
    return file


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``, which can be longer than socket addresses."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        listener.listen(16)
        return listener
    finally:
        os.close(folder)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write the file atomically. Overwrites an existing draft, which reserves the disk space."""
    draft = path.with_suffix(".draft")
    draft.touch()
    with draft.open("r+") as file:
        file.write(json.dumps(value))
    draft.replace(path)


def reap() -> None:
    """Reap ended children and adopted orphans."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def kill_tree() -> None:
    """Kill all processes below this one, including daemons."""
    deadline = time.monotonic() + _PATIENCE_AFTER_KILL
    while (pids := descendants()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        reap()


def descendants() -> list[int]:
    """Return the live descendants of this process."""
    children: dict[int, list[int]] = {}
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        if (fields := stat_fields(pid)) and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(pid)
    found, look = [], [os.getpid()]
    while look:
        below = children.get(look.pop(), [])
        found += below
        look += below
    return found


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name (state, parent, …); empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> int:
    """Return the process's start time in ticks since boot, which with the pid identifies it; 0: it ended."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def resident(pid: int) -> int:
    """Return the process's resident bytes; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    """Return the process's bytes with its share of shared pages; all resident bytes if that is not readable."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return resident(pid)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def oom_kills(cgroups: list[str]) -> int:
    """Return the number of out-of-memory kills in these cgroups (version 1 or 2)."""
    for cgroup in cgroups:
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in Path(cgroup, name).read_text().splitlines())
                return int(counts.get("oom_kill", 0))
    return 0


def remove_traces(launch: dict[str, Any]) -> None:
    """Delete the kernel's traces outside its folder: its cgroups and, without a sandbox, its folder below /tmp."""
    for cgroup in launch["cgroups"]:
        with contextlib.suppress(OSError):
            Path(cgroup).rmdir()
    if launch["runtime"]:
        subprocess.run(["rm", "-rf", "--", launch["runtime"]], capture_output=True)  # rm handles any depth


if __name__ == "__main__":
    NativeRunner(Path(sys.argv[1]), int(sys.argv[2])).run()
