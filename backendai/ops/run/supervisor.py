"""Runs the platform's processes on one machine: starts them, shows their output, restarts and stops them.

It has one thread and one ``select``. Children end with the thread that started them, and forking is safe only without
other threads.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

from backendai.base.process.open_files import raise_open_files
from backendai.ops.run.child import Child, Program
from backendai.ops.run.console import Console
from backendai.ops.run.warm_parent.forking import WarmParent

_HEALTHY_SECONDS = 30.0
_LONGEST_DELAY = 30.0
_TICK_SECONDS = 1.0
_CANNOT_START = 127
_PATIENT_REQUESTS = 1


class StartStopped(Exception):
    """A user has stopped the platform while it was starting."""


def restart_delay(fails: int, first: float = 0.5) -> float:
    """Return the seconds until the next start after ``fails`` short-lived starts in a row."""
    return min(_LONGEST_DELAY, first * 2.0 ** min(fails, 16))


class Supervisor:
    """Starts and watches child processes. It is a context manager: on leaving, every child has ended."""

    def __init__(self, logs: Path, *, terminal: Console | None = None, first_delay: float = 0.5) -> None:
        self.terminal = terminal or Console()
        self._logs = logs
        self._first_delay = first_delay
        self._children: list[Child] = []
        self._parent = WarmParent()
        self._selector = selectors.DefaultSelector()
        self._stop_requests = 0

    def __enter__(self) -> Supervisor:
        raise_open_files()  # children have it from here
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._former_handlers = {signal.SIGCHLD: signal.signal(signal.SIGCHLD, _note)}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has a say
                self._former_handlers[number] = signal.signal(number, self._request_stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def start(self, program: Program) -> None:
        """Start a program, and restart it when it ends."""
        self._add(program)

    def load_code(self, timeout: float) -> None:
        """Start the process that forks the others, and wait until it is ready.

        Without it each process loads the code itself. Raises Stopped.
        """
        if not self._parent.is_possible():
            return
        parent = self._add(self._parent.program())
        self.wait_until(lambda: self._parent.is_ready() or parent.fails > 0, timeout)

    def run_once(self, program: Program) -> int:
        """Run a program to its end; return its exit code. Raises Stopped."""
        child = self._add(program)
        while child.exit_code is None:
            self._turn(_TICK_SECONDS)
            self._raise_if_stopped()
        self._children.remove(child)
        child.close()
        return child.exit_code

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> bool:
        """Keep all programs running until ``ready()``; returns False after ``timeout`` seconds. Raises Stopped."""
        deadline = time.monotonic() + timeout
        while not (answer := ready()) and time.monotonic() < deadline:
            self._turn(0.1)
            self._raise_if_stopped()
        return answer

    def serve(self) -> None:
        """Keep all programs running until SIGTERM, SIGINT or SIGHUP."""
        while not self._stop_requests:
            self._turn(_TICK_SECONDS)

    def _add(self, program: Program) -> Child:
        child = Child(program, terminal=self.terminal, logs=self._logs)
        self._children.append(child)
        self._launch(child)
        return child

    def _turn(self, timeout: float) -> None:
        due = [child.starts_at for child in self._children if child.starts_at is not None]
        timeout = max(0.0, min([timeout, *(at - time.monotonic() for at in due)]))
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                os.read(self._wake_reader, 4096)
            elif not key.data.pump():
                self._selector.unregister(key.fd)
        for child in self._children:
            if child.has_ended():
                self._after_end(child)
            if child.starts_at is not None and child.starts_at <= time.monotonic() and not self._stop_requests:
                self._launch(child)

    def _launch(self, child: Child) -> None:
        try:
            self._selector.register(child.start(self._parent.fork), selectors.EVENT_READ, child)
        except OSError as error:
            self.terminal.say(f"{child.program.name} cannot be started: {error}")
            child.exit_code = _CANNOT_START
            if child.program.restart:
                self._plan_restart(child)

    def _after_end(self, child: Child) -> None:
        if child.output in self._selector.get_map():
            self._selector.unregister(child.output)
        code = child.take_end()
        if child.program.restart and not self._stop_requests:
            self._plan_restart(child)
        elif code and not self._stop_requests:
            self.terminal.say(f"{child.program.name} has ended ({_said(code)})")

    def _plan_restart(self, child: Child) -> None:
        if time.monotonic() - child.started_at >= _HEALTHY_SECONDS:
            child.fails = 0
        delay = restart_delay(child.fails, self._first_delay)
        child.fails += 1
        child.starts_at = time.monotonic() + delay
        reason = _said(child.exit_code)
        self.terminal.say(f"{child.program.name} has ended ({reason}); starting it again in {delay:g} s")

    def _stop(self) -> None:
        self._stop_requests = max(1, self._stop_requests)
        for stage in sorted({child.program.stop_stage for child in self._children}):
            self._stop_stage([child for child in self._children if child.program.stop_stage == stage])
        for child in self._children:
            child.close()
        self._parent.close()
        self._selector.close()
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _stop_stage(self, children: list[Child]) -> None:
        for child in children:
            child.ask_to_stop()
        asked_at = time.monotonic()
        while running := [child for child in children if child.alive]:
            self._turn(0.1)
            waited = time.monotonic() - asked_at
            for child in running:
                if waited > child.program.grace or self._stop_requests > _PATIENT_REQUESTS:
                    child.kill()

    def _raise_if_stopped(self) -> None:
        if self._stop_requests:
            raise StartStopped

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_requests += 1


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing, as the signal itself wakes the ``select``."""


def _said(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
