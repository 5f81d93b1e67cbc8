"""Requests processes from the warm parent for the supervisor. They become its children like all others."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from backendai.ops.run.child import Process, Program
from backendai.ops.run.warm_parent.kinship import adopting
from backendai.ops.run.warm_parent.parent import LONGEST_MESSAGE, NODE, PORTAL

_PATIENCE = 20.0  # seconds for a fork, which takes some hundredths of one
_ROOM = "-" * 600  # for the longest command that is shown in place of this one


class WarmParent:
    """A source of forked processes. If it cannot give one, the process must be started the usual way."""

    def __init__(self) -> None:
        kinds = (NODE, PORTAL)
        self._ours, self._theirs = {}, {}
        for kind in kinds:
            self._ours[kind], self._theirs[kind] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready: dict[str, int] = {}

    def program(self) -> Program:
        """Return the program that runs the parent."""
        descriptors = tuple(self._theirs[kind].fileno() for kind in (NODE, PORTAL))
        command = (sys.executable, "-m", "backendai.ops.run.warm_parent.parent", *map(str, descriptors), _ROOM)
        return Program("parent", command, descriptors=descriptors)

    def is_possible(self) -> bool:
        """Return whether this machine supports it. Linux before 5.3 reports only the ends of direct children."""
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError:
            return False
        return True

    def is_ready(self) -> bool:
        """Return whether the parent has loaded all code."""
        for kind in self._ours:
            while answer := self._hear(kind, 0):
                self._note(kind, answer)
        return len(self._ready) == len(self._ours)

    def fork(self, program: Program, output: int) -> Process | None:
        """Return a new process of a program, which writes to ``output``; None if that is not possible."""
        if not program.fork_from or not self.is_ready():
            return None
        with suppress(OSError), adopting():
            return self._ask(program, output)
        return None

    def close(self) -> None:
        """Close the connections to the parent."""
        for one in (*self._ours.values(), *self._theirs.values()):
            one.close()

    def _ask(self, program: Program, output: int) -> Process | None:
        kind, parent = program.fork_from, self._ready[program.fork_from]
        order = {"to": parent, "words": program.command[1:], "environment": dict(program.environment)}
        its_end = os.pidfd_open(parent)
        try:
            data = json.dumps({**order, "supervisor": os.getpid()}).encode()
            socket.send_fds(self._ours[kind], [data], [output])
            deadline = time.monotonic() + _PATIENCE
            while (left := deadline - time.monotonic()) > 0:
                answer = self._hear(kind, left, its_end)
                if "child" in answer:
                    return ForkedProcess(answer["child"])
                self._note(kind, answer)
                if not answer:
                    break
        finally:
            os.close(its_end)
        return None

    def _hear(self, kind: str, seconds: float, its_end: int | None = None) -> dict[str, Any]:
        """Return the next message of the parent; empty after the timeout, or if the other end has ended."""
        ours = self._ours[kind]
        watched: list[Any] = [ours] if its_end is None else [ours, its_end]
        if ours not in select.select(watched, [], [], seconds)[0]:
            return {}
        return dict(json.loads(ours.recv(LONGEST_MESSAGE)))

    def _note(self, kind: str, answer: dict[str, Any]) -> None:
        if "ready" in answer:
            self._ready[kind] = answer["ready"]


class ForkedProcess:
    """A child that this process did not start itself, with the methods of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal), or None while it runs."""
        return self._take(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        code = self._take(0)
        return 0 if code is None else code

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def _take(self, how: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code
