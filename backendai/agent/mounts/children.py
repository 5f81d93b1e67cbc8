"""Child processes that access storage hosts, each with a deadline. Unkillable ones are counted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from backendai.agent.backends.base import StartFailed, with_cause
from backendai.base.core.messages import Message
from backendai.base.paths.installation import IMPORTED_FROM
from backendai.base.process.slowness import allowed

DEADLINE, SILENCE = 10.0, 30.0
MOST_STUCK = 4
SILENT = "storage-silent"
_AT_ONCE = 2  # per host
_LAST_MOMENT = 0.5
# Without site packages the child starts ten times faster.
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from backendai.agent.mounts.{} import main; main()"


class Children:
    """Runs orders of ``child``. A host with a stuck child gets no other one; with four stuck children no host gets
    one."""

    def __init__(self, deadline: float = DEADLINE, silence: float = SILENCE) -> None:
        self._deadline, self._silence = deadline, silence
        self._stuck: dict[str, list[subprocess.Popen[str]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._turns: dict[str, threading.BoundedSemaphore] = defaultdict(lambda: threading.BoundedSemaphore(_AT_ONCE))

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the child's answer. Raises StartFailed with the child's code, or ``storage-silent`` after the
        deadline."""
        host = order["host"]
        self._check(host)
        with self._lock:
            turn = self._turns[host]
        longest = allowed(self._deadline)
        if not turn.acquire(timeout=longest):
            raise _silent(host, longest)
        try:
            self._check(host)  # a child may have got stuck meanwhile
            answer = self._ask(host, order, longest)
        finally:
            turn.release()
        return _accepted(answer)

    def run_long(self, order: dict[str, Any], heed: Callable[[int], None], *, seconds: float) -> dict[str, Any]:
        """Return the answer of a child of ``archives``. Calls ``heed`` with the bytes so far about once a second; what
        it raises ends the child. Raises like ``run``, after ``seconds`` or a silence of 30 s."""
        host, end = order["host"], time.monotonic() + seconds
        self._check(host)
        child, told = _launched("archives"), b""
        assert child.stdin and child.stdout and child.stderr
        try:
            child.stdin.write(json.dumps(order))
            child.stdin.close()
            while True:
                left = min(allowed(self._silence), end - time.monotonic())
                if not select.select([child.stdout], [], [], max(left, 0.0))[0]:
                    raise _silent(host, left if end > time.monotonic() else seconds)
                if not (piece := os.read(child.stdout.fileno(), 65536)):
                    return _accepted(_answer_of(host, told.decode(), child.stderr.read()))
                *lines, told = (told + piece).split(b"\n")
                for line in lines:
                    heed(json.loads(line)["done"])
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # tar, too
            self._give_up(host, child)

    def stuck(self) -> int:
        """Return the number of children that could not be killed."""
        with self._lock:
            for host, children in list(self._stuck.items()):
                self._stuck[host] = [child for child in children if child.poll() is None]
            return sum(map(len, self._stuck.values()))

    def _check(self, host: str) -> None:
        stuck = self.stuck()
        if self._stuck[host] or stuck >= MOST_STUCK:
            raise _silent(host, allowed(self._deadline))

    def _ask(self, host: str, order: dict[str, Any], longest: float) -> dict[str, Any]:
        child = _launched("child")
        try:
            output, complaint = child.communicate(json.dumps(order), timeout=longest)
        except subprocess.TimeoutExpired:
            self._give_up(host, child)
            raise _silent(host, longest) from None
        return _answer_of(host, output, complaint)

    def _give_up(self, host: str, child: subprocess.Popen[str]) -> None:
        child.kill()
        try:
            child.wait(_LAST_MOMENT)
        except subprocess.TimeoutExpired:  # blocked in a file system call, where signals are not delivered
            with self._lock:
                self._stuck[host].append(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _launched(module: str) -> subprocess.Popen[str]:
    """Start a child process of a module in its own session."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CODE.format(module), str(IMPORTED_FROM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )


def _answer_of(host: str, output: str, complaint: str) -> dict[str, Any]:
    """Return the answer in a child's output. Raises StartFailed with its complaint if there is none."""
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError as error:
        raise StartFailed(
            "Storage host {host}: {complaint}", host=host, complaint=complaint.strip()[-300:], code="mount-refused"
        ) from error
    return answer


def _accepted(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer. Raises StartFailed for a child's refusal."""
    if "code" in answer:
        raise StartFailed(answer["message"], code=answer["code"])
    return answer


def _silent(host: str, deadline: float) -> StartFailed:
    text = Message("Storage host {host} does not answer within {deadline} s.", host=host, deadline=round(deadline, 2))
    return StartFailed(with_cause(text), code=SILENT)
