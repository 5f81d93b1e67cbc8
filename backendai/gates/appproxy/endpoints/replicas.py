"""Tracks the state of each replica, as this proxy's requests and probes show it, and selects the replica of the next
request.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from uuid import UUID

from backendai.base.core.service_ports import REPLICA_SERVICE
from backendai.domain.serving.endpoint_table import ANYBODY, EndpointEntry, ReplicaEntry
from backendai.domain.serving.services.readings import ReplicaReading
from backendai.gates.appproxy.endpoints.counters import Counters
from backendai.gates.gateways.targets import Target
from backendai.scheduler.serving import balance

FRESH_SECONDS = 8.0  # a part of an answer replaces a probe for so long


class Blocked(Exception):
    """No replica will start soon: a start failed, or no agent has room."""


class Stopped(Exception):
    """The endpoint was stopped or deleted while the request waited."""


@dataclass
class Known:
    """The state of one replica. ``missed`` probes and ``broken`` requests are counted in a row, apart from each other:
    a server may answer its probes and fail every request. ``times``: ejections since its last complete answer.
    """

    entry: ReplicaEntry
    has_answered: bool = False
    answered_at: float = 0.0  # the first answer, in monotonic seconds; 0: long ago
    heard_at: float = -FRESH_SECONDS  # the latest part of an answer
    missed: int = 0
    broken: int = 0
    times: int = 0
    ejected_until: float = 0.0
    message: str = ""
    open: int = 0
    requests: int = 0
    errors: int = 0
    is_listed: bool = True
    reported: ReplicaReading | None = None

    def target(self, visitor: str) -> Target:
        """Return the address of the replica's port. A connection of one visitor is not used for another visitor."""
        return _target(self.entry, visitor)

    @property
    def is_answering(self) -> bool:
        """Return whether the replica's latest probes succeeded."""
        return self.has_answered and self.missed < balance.FAILURES

    @property
    def out_until(self) -> float:
        """Return the monotonic time until which the replica gets no requests: infinite while its probes fail, else the
        end of its ejection.
        """
        return self.ejected_until if self.missed < balance.FAILURES else inf

    def note_probe(self, now: float) -> None:
        """Record an answered probe. The count of broken requests stays."""
        if not self.has_answered and not self.entry.is_ready:
            self.answered_at = now
        self.has_answered, self.missed, self.message = True, 0, ""

    def note_missed_probe(self, message: str, now: float) -> None:
        """Count a failed probe, unless a part of an answer has just arrived. A server that streams may be too busy for
        probes.
        """
        if now - self.heard_at < FRESH_SECONDS:
            self.missed = 0
            return
        self.missed, self.message = self.missed + 1, message

    def note_answer(self, now: float) -> None:
        """Record a complete answer. Resets the counts of failures and ends an ejection."""
        self.note_probe(now)
        self.heard_at, self.broken, self.times, self.ejected_until = now, 0, 0, 0.0

    def note_fault(self, message: str, now: float) -> None:
        """Count a broken request. Every third in a row ejects the replica, each time for longer."""
        self.broken += 1
        self.message = message
        if self.broken % balance.FAILURES == 0:
            self.times += 1
            self.ejected_until = now + balance.ejected_for(self.times)

    def sight(self) -> ReplicaReading:
        """Return the state of the replica for the report to the portal."""
        return ReplicaReading(
            UUID(self.entry.id), self.is_answering, self.message, self.open, self.requests, self.errors
        )


class Pool:
    """The replicas of one endpoint and its waiting requests, which are served in turns by token."""

    def __init__(self, endpoint: EndpointEntry, now: Callable[[], float], others: Callable[[], int]) -> None:
        self.endpoint, self._now, self._others = endpoint, now, others
        self.known: dict[str, Known] = {}
        self.counters = Counters(now)
        self._waiting: OrderedDict[str, deque[asyncio.Future[Known]]] = OrderedDict()
        self._admitted: dict[object, tuple[str, Callable[[], None]]] = {}
        self._woken = asyncio.Event()
        self.update(endpoint)

    def update(self, endpoint: EndpointEntry) -> None:
        """Replace the endpoint's entry and its list of replicas, then serve waiting requests. Replicas whose kernel
        and generation are unchanged keep their recorded state. Refuses waiting requests if the endpoint is stopped.
        """
        self.endpoint = endpoint
        listed = {one.id: one for one in endpoint.replicas}
        for pk, entry in listed.items():
            known = self.known.get(pk)
            if known is None or (known.entry.kernel_id, known.entry.generation) != (entry.kernel_id, entry.generation):
                self.known[pk] = Known(entry)
            else:
                known.entry, known.is_listed = entry, True
        for pk, known in self.known.items():
            known.is_listed = pk in listed
        if endpoint.is_stopped:
            self._refuse_waiting()
        self.serve_waiting()

    @contextmanager
    def admitted(self, token: str, cut: Callable[[], None]) -> Iterator[None]:
        """Keep the request's token for the length of the context; ``cut`` ends the request if the token is revoked."""
        key = object()
        self._admitted[key] = (token, cut)
        try:
            yield
        finally:
            del self._admitted[key]

    def cut_unentitled(self, now: float) -> None:
        """End the requests whose token was revoked or has expired. Also those without a token, if the endpoint is no
        longer public. ``now``: seconds since the epoch.
        """
        if not self._admitted:
            return
        valid = {one.id for one in self.endpoint.tokens if not one.is_over(now)}
        if self.endpoint.is_open:
            valid.add(ANYBODY)
        for cut in [cut for token, cut in self._admitted.values() if token not in valid]:
            cut()

    def forget_gone(self) -> None:
        """Delete the state of removed replicas, once the portal knows that they have no open requests."""
        gone = [
            pk
            for pk, one in self.known.items()
            if not one.is_listed and not one.open and one.reported is not None and not one.reported.open
        ]
        for pk in gone:
            del self.known[pk]

    @property
    def has_answering(self) -> bool:
        """Return whether any listed replica has answered this proxy."""
        return any(one.has_answered and one.is_listed for one in self.known.values())

    @property
    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return sum(map(len, self._waiting.values()))

    def take(self, avoid: Collection[str] = (), key: str = "") -> Known | None:
        """Select a replica for one request and count it as open; None if no replica has room. Requests with the same
        ``key`` use the same replica while it is not much busier than the others.
        """
        listed = {pk: one for pk, one in self.known.items() if one.is_listed}
        sights = [balance.ReplicaHealth(pk, one.has_answered, one.out_until) for pk, one in listed.items()]
        out = balance.eject(sights, self._now()) | set(avoid)
        share = max(-(-self.endpoint.concurrency // max(self._others(), 1)), 1) if self.endpoint.concurrency else 0
        warm_up, now = self.endpoint.warm_up, self._now()
        candidates = [
            balance.Candidate(pk, one.open, balance.warmth(now - one.answered_at, warm_up), share)
            for pk, one in listed.items()
        ]
        chosen = self._chosen(candidates, out | self._other_revision(listed.values(), out), key)
        if chosen is None:
            chosen = self._chosen(candidates, out, key)
        if chosen is None:
            return None
        known = listed[chosen]
        known.open += 1
        return known

    def _chosen(self, candidates: list[balance.Candidate[str]], out: Collection[str], key: str) -> str | None:
        kept = balance.keep_to(candidates, key, out) if key else None
        return kept or balance.choose_replica(candidates, random.random(), out)

    def _other_revision(self, listed: Iterable[Known], out: Collection[str]) -> set[str]:
        """Return the replicas that this request avoids, chosen at random by the canary share; empty without a
        canary.
        """
        endpoint = self.endpoint
        if not endpoint.canary:
            return set()
        new = {one.entry.id for one in listed if one.entry.revision == endpoint.canary_revision}
        old = {one.entry.id for one in self.known.values() if one.is_listed} - new
        if not new - set(out) or not old - set(out):
            return set()
        return old if random.random() * 100 < endpoint.canary else new

    def give_back(self, known: Known) -> None:
        """Count one request of a replica as finished, then serve the waiting requests."""
        known.open -= 1
        self.serve_waiting()

    async def wait(self, token: str, seconds: float) -> Known:
        """Wait in the token's queue, and return a replica that is counted as open. Raises TimeoutError, or Stopped if
        the endpoint is stopped.
        """
        turn: asyncio.Future[Known] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(token, deque()).append(turn)
        try:
            async with asyncio.timeout(seconds):
                return await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back(turn.result())  # handed over just as the wait ended
            else:
                self._leave(token, turn)
            raise

    async def until_answering(self, seconds: float) -> None:
        """Wait until any replica has answered. Raises TimeoutError, Stopped or Blocked."""
        async with asyncio.timeout(seconds):
            while not self.has_answering:
                if self.endpoint.is_stopped:
                    raise Stopped
                if self.endpoint.is_blocked:
                    raise Blocked
                self._woken.clear()
                await self._woken.wait()

    def serve_waiting(self) -> None:
        """Give replicas with room to the waiting requests, one request of each token in turn."""
        self._woken.set()
        while self._waiting and (known := self.take()) is not None:
            token, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            self._waiting.move_to_end(token)
            if not turns:
                del self._waiting[token]
            if turn.done():
                known.open -= 1
            else:
                turn.set_result(known)

    def _refuse_waiting(self) -> None:
        for turns in self._waiting.values():
            for turn in turns:
                if not turn.done():
                    turn.set_exception(Stopped())
        self._waiting.clear()

    def _leave(self, token: str, turn: asyncio.Future[Known]) -> None:
        turns = self._waiting.get(token)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[token]


@lru_cache(maxsize=4096)
def _target(one: ReplicaEntry, visitor: str) -> Target:
    return Target(UUID(one.kernel_id), one.generation, REPLICA_SERVICE, one.port, one.gateway_url, visitor=visitor)


def sights_of(pools: Iterable[Pool]) -> list[tuple[Known, ReplicaReading]]:
    """Return the replicas whose state has changed since their last report, each with its state."""
    found = [(one, one.sight()) for pool in pools for one in pool.known.values()]
    return [(one, sight) for one, sight in found if sight != one.reported]
