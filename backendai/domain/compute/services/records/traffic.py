"""Records the last use of sessions.

Code that forwards connections calls a meter for every transfer, which is cheap. The meter's thread writes all sessions
together in one statement, without Redis.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db import close_old_connections, connection
from django.db.models import Q
from django.utils import timezone

from backendai.base.db.bulk import among, write_latest
from backendai.domain.compute.models import ComputeSession, Kernel, SessionTraffic
from backendai.domain.compute.status import Status

logger = logging.getLogger(__name__)

WRITTEN_EVERY = timedelta(seconds=30)
_LOOK_SECONDS = 1.0
_EXIT_SECONDS = 2.0


class Meter:
    """Collects which sessions are in use. ``touch`` may be called for every byte, from any thread."""

    def __init__(self) -> None:
        self._used: dict[UUID, datetime] = {}
        self._written: dict[UUID, datetime] = {}
        self._wakeup = threading.Event()
        self._starting, self._closing = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def touch(self, session_id: UUID) -> None:
        """Record that the session is in use. Never blocks or raises."""
        self._used[session_id] = timezone.now()
        if not self._wakeup.is_set():
            self._wakeup.set()
            self._start()

    def write(self, now: datetime, *, everything: bool = False) -> int:
        """Write the last use of sessions; returns how many. The first use of a session is written at once, further use
        every half minute, or at once with ``everything``. A failed write is repeated at the next call."""
        oldest = now - WRITTEN_EVERY
        used = list(self._used.items())
        due = {pk: at for pk, at in used if everything or self._written.get(pk, oldest) <= oldest}
        if due:
            note_traffic(due)
            lately = {pk: at for pk, at in self._written.items() if at > oldest}
            self._written = lately | dict.fromkeys(due, now)
        for pk, at in due.items():
            if self._used.get(pk) == at:  # else the session was used again during the write
                self._used.pop(pk, None)
        return len(due)

    def close(self) -> None:
        """End the thread after it has written everything; waits two seconds at most. Servers call this when they have
        closed their connections, other processes at their exit. The next ``touch`` starts a new thread."""
        with self._starting:
            if self._thread is None:
                return
            self._closing.set()
            self._wakeup.set()
            self._thread.join(_EXIT_SECONDS)
            self._thread = None
            self._wakeup.clear()
            atexit.unregister(self.close)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._closing = threading.Event()  # its own: a thread that outlives its close must not go on
                self._thread = threading.Thread(target=self._run, args=(self._closing,), name="traffic", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self, closing: threading.Event) -> None:
        while True:
            self._wakeup.wait()
            is_last = closing.wait(_LOOK_SECONDS)
            self._try(everything=is_last)
            if is_last:
                return
            if not self._used:
                self._wakeup.clear()
                if self._used or closing.is_set():  # since the test
                    self._wakeup.set()

    def _try(self, *, everything: bool) -> None:
        close_old_connections()
        try:
            self.write(timezone.now(), everything=everything)
        except Exception as error:  # most likely the database is unreachable; no error may end this thread
            logger.warning("the traffic of sessions cannot be written now: %s", error)
        finally:
            connection.close()


meter = Meter()


def note_traffic(moments: Mapping[UUID, datetime]) -> None:
    """Write the last use of these sessions. Times earlier than the stored ones, and deleted sessions, are ignored. One
    statement."""
    write_latest(SessionTraffic._meta.db_table, ComputeSession._meta.db_table, "session_id", "last_at", moments)


def note_work(kernels: Mapping[UUID, Collection[UUID]], now: datetime) -> int:
    """Record use of these kernels' sessions, as they execute code; returns how many.

    ``kernels``: by agent, as an agent may report only its own. Sessions used within the last half minute are skipped.
    Two statements.
    """
    ids = {kernel_id for named in kernels.values() for kernel_id in named}
    rested = Q(session__traffic=None) | Q(session__traffic__last_at__lte=now - WRITTEN_EVERY)
    rows = Kernel.objects.filter(rested, pk__in=among(ids), status=Status.RUNNING).order_by()
    found = rows.values_list("pk", "agent_id", "session_id")
    sessions = {session_id for pk, agent_id, session_id in found if agent_id and pk in kernels.get(agent_id, ())}
    note_traffic(dict.fromkeys(sessions, now))
    return len(sessions)
