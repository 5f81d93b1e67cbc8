"""A context: a named interpreter, and its queue of runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Awaitable, Callable  # noqa: UP035

from backendai.agent.guest import batch
from backendai.agent.guest.code.interpreter import Interpreter, InterpreterFailed
from backendai.agent.guest.code.run import (
    BUILDING,
    CANCELLED,
    CLEANING,
    FINISHED,
    INTERRUPTING,
    LOST,
    RUNNING,
    STARTING,
    WAITING_INPUT,
    Run,
)
from backendai.agent.guest.home.items import LARGEST_TEXT
from backendai.base.process.slowness import allowed

UNANSWERED_SECONDS = 3600.0
_HIDDEN = "········"  # instead of a password, whatever its length
_BUSY_SECONDS = 1.0
_COMPLETE_SECONDS = 5.0  # the first completion loads many modules
# Users' code can write to the interpreter's socket, so messages may be invalid.
_FORGED = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
_BUSY: dict[str, Any] = {"status": "busy", "matches": []}
Starter = Callable[[str, str, Callable[[str, str], None]], Awaitable[Interpreter]]


class Context:
    """Runs submitted code in order. ``language``: the name of a kernelspec; empty: the image's default."""

    def __init__(self, name: str, language: str, start: Starter) -> None:
        self.name, self.language = name, language
        self.queue: deque[Run] = deque()
        self.current: Run | None = None
        self.interpreter: Interpreter | None = None
        self._start = start
        self._last: Run | None = None
        self._worker: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._limits: dict[str, asyncio.TimerHandle] = {}
        self._done: asyncio.Future[int | None] | None = None
        self._batch: batch.Batch | None = None
        self._is_restarting = False

    @property
    def is_busy(self) -> bool:
        """Whether deleting the context would lose a run or an interpreter's variables."""
        return bool(self.queue) or self.current is not None or self.interpreter is not None

    def submit(self, run: Run) -> None:
        """Append a run to the queue."""
        self.queue.append(run)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())

    def position(self, run: Run) -> int:
        """Return the number of runs before this one; 0 if it is current."""
        return self.queue.index(run) + (self.current is not None) if run in self.queue else 0

    def withdraw(self, run: Run, reason: str = "withdrawn") -> bool:
        """Remove a run from the queue; returns False if it is not queued."""
        if run not in self.queue:
            return False
        self.queue.remove(run)
        return run.move(CANCELLED, reason=reason)

    def interrupt(self, run: Run, reason: str = "interrupted") -> bool:
        """Interrupt the run; returns False if it is not the current one."""
        if run is not self.current or not (run.state == INTERRUPTING or run.move(INTERRUPTING, reason=reason)):
            return False
        if self._batch is not None:
            self._batch.interrupt()
        elif self.interpreter is not None:
            self.interpreter.interrupt()
        return True

    def answer(self, run: Run, text: str) -> bool:
        """Send a line of input; returns False if the run does not wait for input."""
        if run is not self.current:
            return False
        if self._batch is not None:
            self._batch.answer(text)
            return True
        if run.state != WAITING_INPUT or self.interpreter is None:
            return False
        self._cancel_limits("input")
        # Kept in the output, as a terminal and Jupyter show it: the prompt goes with the question.
        shown = _HIDDEN if run.record.get("password") else text
        run.output.text("stdout", f"{run.record.get('prompt') or ''}{shown}\n")
        run.move(RUNNING, prompt=None, password=None)
        self.interpreter.tell({"do": "input", "text": text})
        return True

    async def restart(self) -> None:
        """End the interpreter and all its runs; the next run starts a new interpreter."""
        self._is_restarting = True
        try:
            for run in list(self.queue):
                self.withdraw(run, "restarted")
            if self._batch is not None:
                self._batch.kill()
            async with self._starting:
                interpreter, self.interpreter = self.interpreter, None
            if interpreter is not None:
                await interpreter.kill()
            if self._worker is not None:
                await asyncio.wait([self._worker], timeout=10.0)
        finally:
            self._is_restarting = False

    async def complete(self, code: str, cursor: int) -> dict[str, Any]:
        """Return completions at the cursor; status ``busy`` while code runs or the interpreter starts."""
        if self.current is not None or self._starting.locked():
            return _BUSY
        starting = asyncio.ensure_future(self._ready(None))
        starting.add_done_callback(lambda task: task.cancelled() or task.exception())  # the next run reports the error
        await asyncio.wait([starting], timeout=_BUSY_SECONDS)
        interpreter = self.interpreter
        if interpreter is None or self.current is not None:
            return _BUSY
        number = len(self._asked) + 1
        while number in self._asked:
            number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        interpreter.tell({"do": "complete", "number": number, "code": code, "cursor": cursor})
        try:
            await asyncio.wait([answer], timeout=allowed(_COMPLETE_SECONDS))
            return answer.result() if answer.done() else _BUSY
        finally:
            del self._asked[number]

    async def close(self) -> None:
        """End the interpreter and all its runs."""
        await self.restart()

    def told(self) -> dict[str, Any]:
        """Return the context's state for an answer."""
        about = self.interpreter.about if self.interpreter is not None else {}
        return {
            "name": self.name,
            "language": self.language or about.get("language", ""),
            "interpreter": about,
            "is_started": self.interpreter is not None,
            "run_id": self.current.run_id if self.current else None,
            "queued": len(self.queue),
        }

    async def _work(self) -> None:
        while self.queue:
            run = self.queue.popleft()
            self.current = self._last = run
            try:
                await (self._run_batch(run) if run.record["mode"] == "batch" else self._run_query(run))
            finally:
                self._cancel_limits()
                self.current, self._batch = None, None

    async def _run_query(self, run: Run) -> None:
        if self.interpreter is None:
            run.move(STARTING)
        try:
            await self._ready(run)
        except InterpreterFailed as error:
            self._lose(run, error)
            return
        interpreter = self.interpreter
        if interpreter is None or not run.move(RUNNING):
            self._lose(run, InterpreterFailed("restarted", "The context was restarted."))
            return
        self._set_limit(run, "exec-timeout", float(run.record["timeout"] or 0), "timeout")
        self._done = asyncio.get_running_loop().create_future()
        interpreter.tell({"do": "run", "code": run.record["code"], "run_id": run.run_id})
        exit_code = await self._done
        if exit_code is None:
            await self._mourn(run, interpreter)
        else:
            reason = run.record["reason"] if run.state == INTERRUPTING else ""
            run.move(FINISHED, exit_code=exit_code, reason=reason, prompt=None)
            run.output.is_late = True

    async def _mourn(self, run: Run, interpreter: Interpreter) -> None:
        """Handle the interpreter's end during a run: mark the run as lost, and cancel the queue, as its variables are
        lost."""
        if self._is_restarting:
            self._lose(run, InterpreterFailed("restarted", "The context was restarted."))
            return
        why = await interpreter.why_it_ended()
        self._lose(run, why)
        for waiting in list(self.queue):
            self.withdraw(waiting, "interpreter-lost")

    async def _run_batch(self, run: Run) -> None:
        self._batch = batch.Batch(run.output.text)
        self._set_limit(run, "exec-timeout", float(run.record["timeout"] or 0), "timeout")
        states = {"clean": CLEANING, "build": BUILDING, "exec": RUNNING}
        code = 0
        for step, command in batch.steps_of(run.record["code"], run.record["options"]):
            if run.state == INTERRUPTING or not run.move(states[step], step=step):
                break
            code = await self._batch.run(step, command)
            if step != "exec":
                run.end_step(step, code)
            if code and step == "build" and run.state != INTERRUPTING:
                run.move(FINISHED, exit_code=batch.BUILD_FAILED, reason="build-failed")
            if code and step != "clean":
                break
        if self._is_restarting:
            run.move(LOST, exit_code=code, reason="restarted")
            return
        run.move(FINISHED, exit_code=code, reason=run.record["reason"] if run.state == INTERRUPTING else "")

    async def _ready(self, run: Run | None) -> None:
        """Start the interpreter if there is none. Raises InterpreterFailed."""
        async with self._starting:
            if self.interpreter is not None:
                return
            self.interpreter = await self._start(self.name, self.language, self._hear)
            asyncio.ensure_future(self._listen(self.interpreter))  # noqa: RUF006 - ends with the interpreter
        if run is not None and self.interpreter.about.get("note"):
            run.say(str(self.interpreter.about["note"]))

    async def _listen(self, interpreter: Interpreter) -> None:
        while (message := await interpreter.next()) is not None:
            with contextlib.suppress(*_FORGED):
                self._take(message)
        if self.interpreter is interpreter:
            self.interpreter = None
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
        elif not self._is_restarting:
            await interpreter.why_it_ended()

    def _take(self, message: dict[str, Any]) -> None:
        run = self.current or self._last
        if isinstance(message.get("item"), dict) and run is not None:
            run.output.add(message["item"])
        elif "done" in message and run is self.current and run is not None and message["done"] == run.run_id:
            if self._done is not None and not self._done.done():
                self._done.set_result(int(message.get("exit_code") or 0) & 255)
        elif "ask" in message and run is not None and run is self.current:
            run.output.flush()
            prompt = str(message["ask"])[:LARGEST_TEXT]
            if run.move(WAITING_INPUT, prompt=prompt, password=bool(message.get("password"))):
                self._set_limit(run, "input-timeout", UNANSWERED_SECONDS, "input")
        elif "completion" in message and (answer := self._asked.get(message.get("number", 0))) and not answer.done():
            answer.set_result({"status": "ok", **dict(message["completion"])})

    def _hear(self, kind: str, text: str) -> None:
        run = self.current or self._last
        if run is not None:
            run.output.text(kind, text)

    def _lose(self, run: Run, why: InterpreterFailed) -> None:
        run.say(why.message)
        run.move(LOST, reason=why.reason, prompt=None)
        run.output.is_late = True

    def _set_limit(self, run: Run, reason: str, seconds: float, name: str) -> None:
        if seconds > 0:
            self._limits[name] = asyncio.get_running_loop().call_later(seconds, self.interrupt, run, reason)

    def _cancel_limits(self, *names: str) -> None:
        for name in names or list(self._limits):
            if name in self._limits:
                self._limits.pop(name).cancel()
