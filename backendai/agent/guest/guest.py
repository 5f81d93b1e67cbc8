"""The guest agent inside a kernel answers questions of the agent, one connection per question.

A question is one line of JSON; its ``op`` determines the data that follows it and the answer. The guest has the rights
of the session's user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any, Awaitable, Callable  # noqa: UP035

from backendai.agent.guest.code.checking import LARGEST_CODE, ChangeSignal, Refused, checked, language_of, name_of
from backendai.agent.guest.code.contexts import Context, Starter
from backendai.agent.guest.code.journal import MOST_BYTES, MOST_RUNS, Journal
from backendai.agent.guest.code.run import ENDED, LOST, QUEUED, WAITING_INPUT, Run, new_record
from backendai.agent.guest.follower import Follower, beginning_of
from backendai.agent.guest.home import answers as home_files
from backendai.agent.guest.home.contents import FileRefused
from backendai.agent.guest.home.items import encoded
from backendai.agent.guest.link import streams

LARGEST_QUESTION = 4 * 2**20
MOST_CONTEXTS, MOST_QUEUED = 8, 100
LONGEST_WAIT = 30.0
_LISTED = 200


class Guest:
    """All runs and contexts of one kernel. ``has_files``: it serves files and ports. ``shares_network``: ports on the
    loopback may belong to other kernels."""

    def __init__(
        self,
        journal: Journal,
        start: Starter,
        languages: Callable[[], Awaitable[list[dict[str, str]]]],
        *,
        has_files: bool = True,
        shares_network: bool = False,
    ) -> None:
        self._journal, self._start, self._languages, self._has_files = journal, start, languages, has_files
        self._shares_network = shares_network
        self._changes = ChangeSignal()
        self._contexts: dict[str, Context] = {}
        self._runs: dict[str, Run] = {}
        self._next_number = 1
        self._answering = 0
        self._used_at = time.monotonic()
        self._take_up()

    def idle_seconds(self) -> float:
        """Return the seconds since the last use: a question, a run, or an interpreter with variables."""
        if self._answering or any(one.is_busy for one in self._contexts.values()):
            self._used_at = time.monotonic()
        return time.monotonic() - self._used_at

    @property
    def is_working(self) -> bool:
        """Return whether a run is executing or queued, other than one that waits for input."""
        return any(
            one.current.state != WAITING_INPUT if one.current else one.queue for one in list(self._contexts.values())
        )

    async def next_change(self, seconds: float) -> None:
        """Wait until a run changes or prints, at most ``seconds``."""
        await self._changes.next(seconds)

    async def close(self) -> None:
        """End all interpreters."""
        await asyncio.gather(*(context.close() for context in self._contexts.values()))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question and close the connection."""
        self._answering += 1
        try:
            try:
                order = json.loads(await reader.readline())
                await self._dispatch(dict(order), reader, writer)
            except FileRefused as error:
                _send(writer, {"error": error.told()})
            except Refused as error:
                _send(writer, {"error": {"code": error.code, "message": error.message}})
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                _send(writer, {"error": {"code": "bad-request", "message": f"The request cannot be read: {error}"}})
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the agent has disconnected
        finally:
            self._answering -= 1
            self._used_at = time.monotonic()
            writer.close()

    async def _dispatch(
        self, order: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name = str(order["op"])
        if name == "follow":
            after = {str(key): int(value) for key, value in dict(order.get("after") or {}).items()}
            await Follower(self._runs, after, writer).follow(self._changes)
        elif name in home_files.NAMES:
            if not self._has_files:
                raise FileRefused("This session is simulated: it has no files.", "no-files")
            await home_files.serve(order, reader, writer)
        elif name in streams.NAMES:
            told = {"is_simulated": not self._has_files, "shares_network": self._shares_network}
            await streams.serve(order, reader, writer, **told)
        elif name in self._OPERATIONS:
            _send(writer, await self._OPERATIONS[name](self, order))
        else:
            raise Refused("bad-request", f"There is no operation {name[:32]!r}.")

    async def _run(self, order: dict[str, Any]) -> dict[str, Any]:
        wanted = checked(order)
        run = self._runs.get(wanted["run_id"])
        if run is None:
            context = self._context(wanted["context"], wanted["language"])
            if len(context.queue) >= MOST_QUEUED:
                raise Refused("queue-full", f"{MOST_QUEUED} runs wait in this context: wait, or withdraw some.")
            run = self._enter(wanted)
            context.submit(run)
            await asyncio.sleep(0)  # an idle context starts the run now, which saves its record
            if run.state == QUEUED:
                run.save()
            self._tidy()  # after the start, so that it does not delay the run
        seconds = float(order.get("wait") or 0)
        if order.get("takes"):
            return await self._next_part(run, seconds, again=True)  # a repeated question gets the same answer
        return await self._wait(run, 0, seconds, until=_is_settled)

    async def _take(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the output that was not returned yet, for readers that keep no offset."""
        return await self._next_part(self._find(order), float(order.get("wait") or 0))

    async def _next_part(self, run: Run, seconds: float, *, again: bool = False) -> dict[str, Any]:
        await self._wait(run, 0, seconds, until=lambda run: _is_settled(run) or run.has_step_to_tell)
        return {**run.take(again=again), "queue_position": self._context_of(run).position(run)}

    async def _read(self, order: dict[str, Any]) -> dict[str, Any]:
        run = self._find(order)
        after, known = int(order.get("after") or 0), str(order.get("state") or "")

        def has_news(run: Run) -> bool:
            run.output.flush()
            is_other = run.state != known if known else _is_settled(run)
            return is_other or run.has_ended or run.output.log.end > after

        return await self._wait(run, after, float(order.get("wait") or 0), until=has_news)

    async def _wait(self, run: Run, after: int, seconds: float, *, until: Callable[[Run], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + min(max(seconds, 0.0), LONGEST_WAIT)
        while not until(run) and (left := deadline - time.monotonic()) > 0:
            await self._changes.next(left)
        return {**run.read(after), "queue_position": self._context_of(run).position(run)}

    async def _input(self, order: dict[str, Any]) -> dict[str, Any]:
        run = self._find(order)
        if not self._context_of(run).answer(run, str(order["text"])):
            raise Refused("no-question", "The run does not wait for input.")
        return run.told()

    async def _interrupt(self, order: dict[str, Any]) -> dict[str, Any]:
        run = self._find(order)
        context = self._context_of(run)
        if not context.interrupt(run) and not context.withdraw(run) and not run.has_ended:
            raise Refused("not-now", "The interpreter is being started: interrupt the run when it runs.")
        return run.told()

    async def _withdraw(self, order: dict[str, Any]) -> dict[str, Any]:
        """Remove the run from the queue; delete an ended run with its output. Raises Refused for a running one."""
        run = self._find(order)
        if self._context_of(run).withdraw(run):
            return run.told()
        if not run.has_ended:
            raise Refused("run-in-progress", "The run has started: interrupt it instead.")
        self._delete(run)
        return run.told()

    async def _runs_list(self, order: dict[str, Any]) -> dict[str, Any]:
        before, limit = int(order.get("before") or 0), min(int(order.get("limit") or _LISTED), _LISTED)
        older = [run for run in self._runs.values() if run.number < before or not before]
        told = [{**run.told(), **beginning_of(run)} for run in older[-max(limit, 1) :]]
        is_more = len(older) > len(told)
        contexts = [context.told() for context in self._contexts.values()]
        return {"runs": told, "before": told[0]["number"] if is_more else None, "contexts": contexts}

    async def _code(self, order: dict[str, Any]) -> dict[str, Any]:
        run = self._find(order)
        return {**run.told(), "code": run.record["code"], "options": run.record["options"]}

    async def _make_context(self, order: dict[str, Any]) -> dict[str, Any]:
        name, language = name_of(order.get("context")), language_of(order)
        known = self._contexts.get(name)
        if known is not None and known.language != language:
            raise Refused("context-exists", f"The context {name} exists with another language: choose another name.")
        return self._context(name, language).told()

    async def _restart(self, order: dict[str, Any]) -> dict[str, Any]:
        context = self._contexts.get(name_of(order.get("context")))
        if context is None:
            raise Refused("no-such-context", "There is no such context.")
        await context.restart()
        return context.told()

    async def _delete_context(self, order: dict[str, Any]) -> dict[str, Any]:
        """End the interpreter and delete the context; with ``runs``, also its ended runs and their output."""
        name = name_of(order.get("context"))
        told = await self._restart(order) if name in self._contexts or not order.get("runs") else {"name": name}
        self._contexts.pop(name, None)
        if order.get("runs"):  # a run submitted meanwhile continues
            for run in [run for run in self._runs.values() if run.record["context"] == name and run.has_ended]:
                self._delete(run)
        return told

    async def _languages_list(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"languages": await self._languages()}

    async def _complete(self, order: dict[str, Any]) -> dict[str, Any]:
        code = str(order.get("code") or "")[:LARGEST_CODE]
        context = self._context(name_of(order.get("context")), language_of(order))
        return await context.complete(code, int(order.get("cursor", len(code))))

    def _context(self, name: str, language: str) -> Context:
        context = self._contexts.get(name)
        if context is None:
            if len(self._contexts) >= MOST_CONTEXTS:
                raise Refused("too-many-contexts", f"A session has {MOST_CONTEXTS} contexts at most: delete one.")
            context = self._contexts[name] = Context(name, language, self._start)
        return context

    def _context_of(self, run: Run) -> Context:
        return self._contexts.get(str(run.record["context"])) or Context("", "", self._start)

    def _find(self, order: dict[str, Any]) -> Run:
        run = self._runs.get(str(order["run_id"]))
        if run is None:
            raise Refused("no-such-run", "There is no such run in this session.")
        return run

    def _enter(self, order: dict[str, Any]) -> Run:
        run = Run(self._journal, new_record(self._next_number, order), self._changes.tell)
        self._next_number += 1
        self._runs[run.run_id] = run
        return run

    def _tidy(self) -> None:
        """Keep the journal within its limits, by deleting the oldest ended runs and output."""
        ended = [run for run in self._runs.values() if run.has_ended]
        for run in ended[: max(0, len(self._runs) - MOST_RUNS)]:
            self._delete(run)
        for run in ended:
            run.output.log.close()
        total = sum(run.output.log.size for run in self._runs.values())
        for run in ended:
            while total > MOST_BYTES and (freed := run.output.log.drop_oldest()):
                total -= freed

    def _delete(self, run: Run) -> None:
        run.output.log.close()
        self._journal.delete(run.run_id)
        self._runs.pop(run.run_id, None)

    def _take_up(self) -> None:
        """Load the journal of an earlier guest. Runs that were in progress are marked as lost."""
        for record in self._journal.records():
            run = Run(self._journal, record, self._changes.tell)
            self._runs[run.run_id] = run
            self._next_number = max(self._next_number, int(record["number"]) + 1)
            if record["state"] not in ENDED:
                run.say("The program that ran this was killed.")
                run.record.update(state=LOST, reason="guest-ended", prompt=None, ended_at=time.time())
                run.save()

    _OPERATIONS = {
        "run": _run,
        "read": _read,
        "take": _take,
        "input": _input,
        "interrupt": _interrupt,
        "withdraw": _withdraw,
        "runs": _runs_list,
        "code": _code,
        "context": _make_context,
        "restart": _restart,
        "languages": _languages_list,
        "delete-context": _delete_context,
        "complete": _complete,
    }


def _is_settled(run: Run) -> bool:
    """Whether the run will not change without a person's action."""
    return run.has_ended or run.state == WAITING_INPUT


def _send(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    with contextlib.suppress(RuntimeError):
        writer.write(encoded(answer))
