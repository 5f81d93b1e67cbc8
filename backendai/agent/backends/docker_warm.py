"""A few networks that are ready before the kernels that use them, each for one lone kernel and never again.

An unused holder has a mark in the agent's folder. It is put before the holder is made, so that none is made where marks
cannot be, and it goes before any call names the holder as a kernel's network. So after a crash everything without a
mark counts as used: it stays while its kernel does, and a sweep takes the rest. The pool fills itself only while
nothing starts or ends: in a burst it runs dry, and starts go the usual way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID, uuid4

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker_engine import UNREACHABLE, Engine
from backendai.agent.backends.docker_holder import Holder, Holders, can_hold
from backendai.agent.backends.docker_marks import Marks
from backendai.agent.kernel_runtime import SHARING_RUNTIMES
from backendai.wire.messages import Note

logger = logging.getLogger(__name__)

CALM_SECONDS = 1.0
_RETRY_SECONDS, _LONGEST_RETRY = 30.0, 960.0
_CLOSE_SECONDS, _SWEEP_SECONDS = 5.0, 8.0  # for all removals together
_REMOVAL_SECONDS = 2.5  # for one of them: the next may go better


class WarmNetworks:
    """Up to ``size`` unused holders; safe to use from many threads. ``info`` returns the engine's description of
    itself."""

    def __init__(
        self, engine: Engine, holders: Holders, marks: Marks, *, size: int, info: Callable[[], dict[str, Any]]
    ) -> None:
        self._engine, self._holders, self._marks = engine, holders, marks
        self._size, self._info = size, info
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._idle: list[Holder] = []
        self._busy: set[UUID] = set()  # being made, or claimed by a start that is under way
        self._touched: dict[UUID, float] = {}
        self._at_work, self._calm_from = 0, 0.0
        self._retry_from, self._retry_after = 0.0, _RETRY_SECONDS
        self._is_engine_silent = False
        self._cut_off: set[UUID] = set()

    def open(self) -> None:
        """Take up what an earlier process of this agent made and did not use, and begin to fill; may be repeated.
        Raises BackendError."""
        with self._changed:
            if self._thread is not None or self._closed or self._size == 0 or not can_hold(self._info()):
                return
            marks = self._marks.all()
            found = [one for one in self._holders.listed()[0] if one.is_usable and one.holder_id in marks]
            self._idle = found[: self._size]
            self._calm_from = time.monotonic() + CALM_SECONDS
            self._thread = threading.Thread(target=self._keep_full, name="warm-networks", daemon=True)
            self._thread.start()

    @contextmanager
    def claimed(self, runtime: str | None) -> Iterator[Holder | None]:
        """Give an unused holder for one kernel, or None. Nobody else ever gets it, unless it is given back. Raises what
        the engine raises; use it inside ``asking``."""
        with ExitStack() as claims:
            yield self._healthy(claims) if runtime is None or runtime in SHARING_RUNTIMES else None

    def give_back(self, holder: Holder) -> None:
        """Take a claimed holder as unused again: the engine has said that it made no container with it."""
        try:
            self._marks.put(holder.holder_id)
        except BackendError as error:
            logger.warning("an unused network is given up: %s", error.message)
            return
        with self._changed:
            self._idle.append(holder)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """No network is started while something starts or ends inside, nor for a moment afterwards."""
        with self._changed:
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._calm_from = time.monotonic() + CALM_SECONDS
                self._changed.notify_all()

    def sweep(self) -> None:
        """Remove the holders that serve nobody, forget those that are gone, and note kernels that have lost theirs.
        What cannot be removed stays for the next sweep. Raises what the engine raises; use it inside ``asking``."""
        marks, started_at = self._marks.all(), time.monotonic()
        holders, cut_off = self._holders.listed()
        healthy = {one for one in holders if one.is_usable}
        with self._changed:
            recent = {holder_id for holder_id, touched_at in self._touched.items() if touched_at >= started_at}
            self._touched = {holder_id: self._touched[holder_id] for holder_id in recent}
            under_way = self._busy | recent
            self._idle = [one for one in self._idle if one in healthy or one.holder_id in under_way]
            kept = {one.holder_id for one in self._idle} | under_way
            self._engine_answered()
            self._changed.notify_all()
        self._remove([one for one in holders if not one.joined and one.holder_id not in kept], _SWEEP_SECONDS)
        for holder_id in marks - kept:
            self._marks.take(holder_id)
        self._note_cut_off(cut_off)

    def notes(self) -> list[Note]:
        """Return the kernels whose network was taken away."""
        return [
            Note(
                code="kernel-without-network",
                message=f"Kernel {kernel_id} has no network any more: something outside the platform ended or restarted"
                " its holder.",
                fix="What it computes goes on. End its session and start it again to have a network.",
            )
            for kernel_id in sorted(self._cut_off)
        ]

    def close(self) -> None:
        """Fill no more and remove what is unused, as far as the engine does it within 5 seconds in all; the rest stays
        for the next start of the agent, and the networks of kernels for their kernels."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
        self._remove(idle, deadline - time.monotonic())

    def dismantle(self) -> None:
        """Close, and remove every holder of this agent that no kernel joined, also those of earlier processes. Raises
        what the engine raises; use it inside ``asking``."""
        self.close()
        self._remove([one for one in self._holders.listed()[0] if not one.joined], _SWEEP_SECONDS)

    def _healthy(self, claims: ExitStack) -> Holder | None:
        """Return a holder that is as it was when it was made; those that are not go with the next sweep."""
        while (holder := self._claim()) is not None:
            claims.callback(self._let_go, holder.holder_id)
            if self._holders.is_unchanged(holder):
                return holder
            logger.warning("an unused network is given up: something outside the platform ended or restarted it")
        return None

    def _claim(self) -> Holder | None:
        with self._changed:
            while self._idle:
                holder = self._idle.pop(0)
                if self._marks.take(holder.holder_id):  # otherwise the taker of the mark has the holder
                    self._busy.add(holder.holder_id)
                    return holder
        return None

    def _let_go(self, holder_id: UUID) -> None:
        """A sweep that has listed before this moment does not know yet what became of the holder."""
        with self._changed:
            self._busy.discard(holder_id)
            self._touched[holder_id] = time.monotonic()

    def _keep_full(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (rest := self._rest()) != 0.0:
                    self._changed.wait(rest)
                if self._closed:
                    return
                holder_id = uuid4()
                self._busy.add(holder_id)
            try:
                self._add(holder_id)
            except BackendError as error:
                logger.warning("no network could be made in advance: %s", error.message)
                self._postpone(is_engine_silent=error.code == UNREACHABLE)
            except Exception:
                logger.exception("no network could be made in advance")
                self._postpone()
            finally:
                self._let_go(holder_id)

    def _postpone(self, *, is_engine_silent: bool = False) -> None:
        """A refusal is likely to be repeated; silence ends some time, and a sweep sees its end."""
        with self._changed:
            self._retry_from = time.monotonic() + self._retry_after
            self._is_engine_silent = is_engine_silent
            if not is_engine_silent:
                self._retry_after = min(self._retry_after * 2, _LONGEST_RETRY)

    def _engine_answered(self) -> None:
        if self._is_engine_silent:
            self._is_engine_silent = False
            self._retry_from, self._retry_after = 0.0, _RETRY_SECONDS

    def _rest(self) -> float | None:
        """Return the seconds until a network should be made; None: until something changes."""
        if self._at_work or len(self._idle) >= self._size:
            return None
        return max(self._calm_from - time.monotonic(), self._retry_from - time.monotonic(), 0.0)

    def _add(self, holder_id: UUID) -> None:
        self._marks.put(holder_id)
        try:
            with self._engine.asking():
                holder = self._holders.make(holder_id, self._info()["Architecture"])
        except BaseException:
            self._marks.take(holder_id)
            raise
        with self._changed:
            self._retry_after = _RETRY_SECONDS
            if not self._closed:
                self._idle.append(holder)
                return
        self._remove([holder], _REMOVAL_SECONDS)

    def _remove(self, holders: list[Holder], seconds: float) -> None:
        """Remove holders that nobody uses. One that cannot be removed holds up neither the others nor, beyond
        ``seconds`` for all of them, however many wait."""
        deadline = time.monotonic() + seconds
        for done, holder in enumerate(holders):
            left = deadline - time.monotonic()
            if left <= 0:
                logger.info("%d unused networks stay for now: the engine is slow", len(holders) - done)
                return
            self._marks.take(holder.holder_id)
            try:
                self._engine.discard(holder.container_id, seconds=min(left, _REMOVAL_SECONDS))
            except BackendError as error:
                logger.warning("network holder %s cannot be removed now: %s", holder.holder_id, error.message)

    def _note_cut_off(self, kernels: set[UUID]) -> None:
        for kernel_id in kernels - self._cut_off:
            logger.warning("kernel %s has no network any more: its holder is gone or was restarted", kernel_id)
        self._cut_off = kernels
