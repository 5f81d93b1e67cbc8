"""Prepares a few networks for later single kernels, each used once.

An unused holder has a mark in the agent's folder. The mark is created before the holder, so that no holder exists where
marks are impossible, and deleted before any call uses the holder for a kernel. After a crash, everything without a mark
counts as used: it stays while its kernel exists, and a sweep removes the rest. Networks are prepared only while no
kernel starts or ends: during a burst none is left, and starts create their own.
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
from backendai.agent.backends.docker.engine import UNREACHABLE, Engine
from backendai.agent.backends.docker.networks.prepared.holder import NetworkHolder, NetworkHolders, can_hold
from backendai.agent.backends.docker.networks.prepared.marks import HolderMarks
from backendai.agent.settings.kernel_runtime import SHARING_RUNTIMES
from backendai.base.wire.messages import Note

logger = logging.getLogger(__name__)

CALM_SECONDS = 1.0
_RETRY_SECONDS, _LONGEST_RETRY = 30.0, 960.0
_CLOSE_SECONDS, _SWEEP_SECONDS = 5.0, 8.0  # seconds for all removals together
_REMOVAL_SECONDS = 2.5  # seconds for one removal


class PreparedNetworks:
    """Up to ``size`` unused holders. Thread-safe. ``info`` returns the engine's description."""

    def __init__(
        self,
        engine: Engine,
        holders: NetworkHolders,
        marks: HolderMarks,
        *,
        size: int,
        info: Callable[[], dict[str, Any]],
    ) -> None:
        self._engine, self._holders, self._marks = engine, holders, marks
        self._size, self._info = size, info
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._idle: list[NetworkHolder] = []
        self._busy: set[UUID] = set()  # holders that are being created, or claimed by a running start
        self._touched: dict[UUID, float] = {}
        self._at_work, self._calm_from = 0, 0.0
        self._retry_from, self._retry_after = 0.0, _RETRY_SECONDS
        self._is_engine_silent = False
        self._cut_off: set[UUID] = set()

    def open(self) -> None:
        """Adopt unused holders of an earlier process of this agent, and start to prepare networks. Repeatable. Raises
        BackendError."""
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
    def claimed(self, runtime: str | None) -> Iterator[NetworkHolder | None]:
        """Yield an unused holder for one kernel, or None. No other kernel gets it, unless it is given back. Raises the
        engine's errors; use it inside ``asking``."""
        with ExitStack() as claims:
            yield self._healthy(claims) if runtime is None or runtime in SHARING_RUNTIMES else None

    def give_back(self, holder: NetworkHolder) -> None:
        """Take a claimed holder back, as the engine created no container with it."""
        try:
            self._marks.put(holder.holder_id)
        except BackendError as error:
            logger.warning("an unused network is given up: %s", error.message)
            return
        with self._changed:
            self._idle.append(holder)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Prepare nothing while a kernel starts or ends inside, and for 1 s afterwards."""
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
        """Remove unused holders of earlier processes, and record kernels that lost theirs. A holder that cannot be
        removed stays for the next sweep. Raises the engine's errors; use it inside ``asking``."""
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
        """Return notes about kernels that lost their network."""
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
        """Stop filling and remove unused holders, for 5 s at most; the rest stays for the agent's next start. Holders
        of kernels stay."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
        self._remove(idle, deadline - time.monotonic())

    def dismantle(self) -> None:
        """Close, and remove all holders of this agent that no kernel joined. Raises the engine's errors; use
        it inside ``asking``."""
        self.close()
        self._remove([one for one in self._holders.listed()[0] if not one.joined], _SWEEP_SECONDS)

    def _healthy(self, claims: ExitStack) -> NetworkHolder | None:
        """Return an unchanged holder; the next sweep removes the others."""
        while (holder := self._claim()) is not None:
            claims.callback(self._let_go, holder.holder_id)
            if self._holders.is_unchanged(holder):
                return holder
            logger.warning("an unused network is given up: something outside the platform ended or restarted it")
        return None

    def _claim(self) -> NetworkHolder | None:
        with self._changed:
            while self._idle:
                holder = self._idle.pop(0)
                if self._marks.take(holder.holder_id):  # else another process has taken the mark and so the holder
                    self._busy.add(holder.holder_id)
                    return holder
        return None

    def _let_go(self, holder_id: UUID) -> None:
        """Release a claimed holder. Remembers the time, as a sweep that listed holders before does not know its
        state."""
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
        """Delay the next try. The delay grows after refusals, but not while the engine is silent, as a sweep detects
        that end."""
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
        """Return the seconds until the next network should be created; None: until a change."""
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

    def _remove(self, holders: list[NetworkHolder], seconds: float) -> None:
        """Remove unused holders, for up to ``seconds`` in total. A holder that cannot be removed does not delay the
        others."""
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
