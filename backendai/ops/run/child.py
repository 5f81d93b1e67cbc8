"""A child process of the supervisor, which cannot outlive it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from backendai.ops.run.console import Console, LogFile
from backendai.ops.run.warm_parent.kinship import die_with

_LONGEST_LINE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """A command to run, and how to end it.

    Programs of a lower ``stop_stage`` are stopped first, and get ``grace`` seconds. Without ``restart`` they run once.
    Without ``inherit`` they get only their own environment, so no secret of the platform. ``fork_from``: the process
    that has already loaded the program's code (``warm_parent``); ``descriptors`` are inherited.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    restart: bool = True
    stop_stage: int = 1
    grace: float = 10.0
    fork_from: str = ""
    descriptors: tuple[int, ...] = ()
    inherit: bool = True


class Process(Protocol):
    """A started process, with the methods of ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def terminate(self) -> None: ...


class Child:
    """A running or ended process of a program, with its output."""

    def __init__(self, program: Program, *, terminal: Console, logs: Path) -> None:
        self.program = program
        self.fails = 0
        self.started_at = 0.0
        self.starts_at: float | None = None
        self.exit_code: int | None = None
        self._terminal = terminal
        self._log = LogFile(logs / f"{program.name}.log")
        self._process: Process | None = None
        self._output = -1
        self._partial = b""

    @property
    def alive(self) -> bool:
        """Whether a process was started whose end ``take_end`` has not collected."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """The process id while alive."""
        return self._process.pid if self._process else None

    @property
    def output(self) -> int:
        """The descriptor of the process's output while alive."""
        return self._output

    def start(self, fork: Callable[[Program, int], Process | None]) -> int:
        """Start the process, by ``fork`` or else by ``subprocess``; return the descriptor of its output.

        Call it only from the main thread, as a child ends with the *thread* that started it.
        """
        self._output, its_output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(its_output, True)
            self._process = fork(self.program, its_output) or self._run(its_output)
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(its_output)
        self.started_at, self.starts_at, self.exit_code = time.monotonic(), None, None
        return self.output

    def pump(self) -> bool:
        """Copy the process's output to the terminal and the log; returns False at its end."""
        try:
            data = os.read(self.output, _LONGEST_LINE)
        except BlockingIOError:
            return True
        *lines, self._partial = (self._partial + data).split(b"\n")
        if self._partial and (not data or len(self._partial) > _LONGEST_LINE):
            lines, self._partial = [*lines, self._partial], b""
        for line in lines:
            self._terminal.line(self.program.name, line)
            self._log.write(line + b"\n")
        return bool(data)

    def has_ended(self) -> bool:
        """Return whether the process has ended and waits for ``take_end``."""
        return self._process is not None and self._process.poll() is not None

    def take_end(self) -> int:
        """Copy the last output of the ended process; return its exit code (negative: the signal)."""
        # A grandchild may hold the pipe open for ever: take what is there, do not wait for its end.
        while select.select([self.output], [], [], 0)[0] and self.pump():
            pass
        process, self._process = self._running(), None
        os.close(self._output)
        self.exit_code = process.wait()
        return self.exit_code

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process."""
        if self._process:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process and its process group."""
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the log file."""
        self._log.close()

    def _run(self, its_output: int) -> Process:
        return subprocess.Popen(
            self.program.command,
            env={**(os.environ if self.program.inherit else {}), **self.program.environment},
            stdin=subprocess.DEVNULL,
            stdout=its_output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self.program.descriptors,
            preexec_fn=partial(die_with, os.getpid()),  # safe: the supervisor has one thread
        )

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"{self.program.name} is not running")
        return self._process
