"""A few networks that are ready before the kernels that use them, each for one lone kernel and never again.

An unused holder has a mark in the agent's folder, and the mark goes before any call names the holder as a kernel's
network. So after a crash everything without a mark counts as used: it stays while its kernel does, and a sweep takes
the rest. The pool fills itself only while nothing starts or ends: in a burst it runs dry, and starts go the usual way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker_engine import Engine
from backendai.agent.backends.docker_holder import SHARING_RUNTIMES, Holder, Holders, can_hold
from backendai.wire.messages import Note

logger = logging.getLogger(__name__)

CALM_SECONDS = 1.0
_RETRY_SECONDS, _LONGEST_RETRY = 30.0, 960.0
_FAREWELL_SECONDS = 5.0


class WarmNetworks:
    """Up to ``size`` unused holders; safe to use from many threads. ``marks`` is a folder of this agent alone,
    ``info`` returns the engine's description of itself."""

    def __init__(
        self, engine: Engine, holders: Holders, marks: Path, *, size: int, info: Callable[[], dict[str, Any]]
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
        self._cut_off: set[UUID] = set()

    def open(self) -> None:
        """Take up what an earlier process of this agent made and did not use, and begin to fill; may be repeated.
        Raises BackendError."""
        with self._changed:
            if self._thread is not None or self._closed or self._size == 0 or not can_hold(self._info()):
                return
            self._marks.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = [one for one in self._holders.listed()[0] if one.is_usable and self._mark(one.holder_id).exists()]
            self._idle = found[: self._size]
            self._calm_from = time.monotonic() + CALM_SECONDS
            self._thread = threading.Thread(target=self._keep_full, name="warm-networks", daemon=True)
            self._thread.start()

    @contextmanager
    def claimed(self, runtime: str | None) -> Iterator[Holder | None]:
        """Give an unused holder for one kernel, or None. Nobody else ever gets it, unless it is given back."""
        holder = self._claim() if runtime is None or runtime in SHARING_RUNTIMES else None
        try:
            yield holder
        finally:
            if holder is not None:
                self._let_go(holder.holder_id)

    def give_back(self, holder: Holder) -> None:
        """Take a claimed holder as unused again: the engine has said that it made no container with it."""
        self._mark(holder.holder_id).touch()
        with self._changed:
            self._idle.append(holder)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """No network is begun while something starts or ends inside, nor for a moment afterwards."""
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
        Raises what the engine raises; use it inside ``asking``."""
        marks, begun = list(self._marks.glob("*")), time.monotonic()
        holders, running = self._holders.listed()
        here = {one.holder_id for one in holders if one.running}
        with self._changed:
            recent = {holder_id for holder_id, touched_at in self._touched.items() if touched_at >= begun}
            self._touched = {holder_id: self._touched[holder_id] for holder_id in recent}
            under_way = self._busy | recent
            self._idle = [one for one in self._idle if one.holder_id in here | under_way]
            kept = {one.holder_id for one in self._idle} | under_way
            self._changed.notify_all()
        for one in holders:
            if not one.joined and one.holder_id not in kept:
                self._discard(one)
        for mark in marks:
            if mark.name not in {str(holder_id) for holder_id in kept}:
                mark.unlink(missing_ok=True)
        alive = {one.container_id for one in holders if one.running}
        self._note_cut_off({kernel_id for kernel_id, container_id in running.items() if container_id not in alive})

    def notes(self) -> list[Note]:
        """Return the kernels whose network was taken away."""
        return [
            Note(
                code="kernel-without-network",
                message=f"Kernel {kernel_id} has no network any more: something outside the platform ended its holder.",
                fix="What it computes goes on. End its session and start it again to have a network.",
            )
            for kernel_id in sorted(self._cut_off)
        ]

    def close(self) -> None:
        """Fill no more and remove what is unused, unless the engine is silent; the networks of kernels stay."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_FAREWELL_SECONDS)
        try:
            with self._engine.asking(seconds=_FAREWELL_SECONDS):
                for holder in idle:
                    self._discard(holder)
        except BackendError as error:
            logger.info("unused networks stay until the next start: %s", error.message)

    def _claim(self) -> Holder | None:
        with self._changed:
            while self._idle:
                holder = self._idle.pop(0)
                try:
                    self._mark(holder.holder_id).unlink()
                except OSError:
                    continue  # whoever took the mark away has the holder too
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
                self._postpone()
            except Exception:
                logger.exception("no network could be made in advance")
                self._postpone()
            finally:
                self._let_go(holder_id)

    def _postpone(self) -> None:
        with self._changed:
            self._retry_from = time.monotonic() + self._retry_after
            self._retry_after = min(self._retry_after * 2, _LONGEST_RETRY)

    def _rest(self) -> float | None:
        """Return the seconds until a network should be made; None: until something changes."""
        if self._at_work or len(self._idle) >= self._size:
            return None
        return max(self._calm_from - time.monotonic(), self._retry_from - time.monotonic(), 0.0)

    def _add(self, holder_id: UUID) -> None:
        with self._engine.asking():
            holder = self._holders.make(holder_id, self._info()["Architecture"])
            self._mark(holder_id).touch()
            with self._changed:
                self._retry_after = _RETRY_SECONDS
                if not self._closed:
                    self._idle.append(holder)
                    return
            self._discard(holder)

    def _discard(self, holder: Holder) -> None:
        self._mark(holder.holder_id).unlink(missing_ok=True)
        self._holders.remove(holder.container_id)

    def _note_cut_off(self, kernels: set[UUID]) -> None:
        for kernel_id in kernels - self._cut_off:
            logger.warning("kernel %s has no network any more: its network holder is gone", kernel_id)
        self._cut_off = kernels

    def _mark(self, holder_id: UUID) -> Path:
        return self._marks / str(holder_id)
