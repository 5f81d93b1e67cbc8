"""Replicas follow their sessions and what app proxies see of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F

from backendai.base.core.messages import Message, shortened
from backendai.domain.compute.reasons import reason_of
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import TERMINAL, Outcome, Phase, Status
from backendai.domain.serving.models import Replica, Revision, State
from backendai.domain.serving.moves import move_replicas, note
from backendai.domain.serving.reading import EndpointsReading, ObservedReplica

REPLACE_AFTER = timedelta(seconds=60)
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=5)
_COMING = (State.STARTING, State.LOADING)


def follow(reading: EndpointsReading) -> int:
    """Move each replica as its session and the app proxies say; returns how many moved or changed."""
    now = reading.now
    return sum(_follow(one, reading, now) for one in reading.seen.values())


def _follow(seen: ObservedReplica, reading: EndpointsReading, now: datetime) -> int:
    replica, session = seen.replica, seen.replica.session
    if session.status in TERMINAL:
        return _ended(replica, now)
    if session.status == Status.TERMINATING:
        return _is_ending(replica, now)
    if replica.state == State.STARTING and session.status == Status.RUNNING:
        return len(move_replicas([replica.pk], State.LOADING, now=now, loading_at=now))
    if replica.state == State.LOADING:
        return _loading(seen, now)
    if replica.state == State.READY:
        return _watch(seen, now)
    return _drain(seen, reading, now) if replica.state == State.DRAINING else 0


def _loading(seen: ObservedReplica, now: datetime) -> int:
    replica = seen.replica
    if seen.has_answered:
        moved = move_replicas([replica.pk], State.READY, now=now, ready_at=now, silent_since=None)
        if moved:
            Revision.objects.filter(pk=replica.revision_id).update(failed_starts=0, retry_at=None, last_error="")
        return len(moved)
    if replica.loading_at is None or now - replica.loading_at < replica.revision.startup_timeout:
        return 0
    minutes = replica.revision.startup_timeout.total_seconds() / 60
    message = Message(
        "It did not answer within {minutes} min. The last probe: {probe}.",
        minutes=f"{minutes:g}",
        probe=seen.message or Message("no app proxy reported"),
    )
    return int(end_replica(replica, "never-ready", message, now=now))


def _watch(seen: ObservedReplica, now: datetime) -> int:
    """Note since when a READY replica is silent. One that is silent on a living agent for a minute ends."""
    replica = seen.replica
    is_lost = any(lost for _, lost, _ in seen.agents)
    if not seen.is_silent:
        heard = Replica.objects.filter(pk=replica.pk, silent_since__isnull=False) if seen.has_answered else None
        return heard.update(silent_since=None) if heard is not None and replica.silent_since else 0
    if replica.silent_since is None:
        return Replica.objects.filter(pk=replica.pk, silent_since=None).update(silent_since=now)
    if is_lost or now - replica.silent_since < REPLACE_AFTER:
        return 0
    message = Message(
        "It has not answered for {seconds} s: {probe}", seconds=int(REPLACE_AFTER.total_seconds()), probe=seen.message
    )
    return int(end_replica(replica, "not-answering", message, now=now))


def _drain(seen: ObservedReplica, reading: EndpointsReading, now: datetime) -> int:
    """End a draining replica once every app proxy knows of it and has nothing open, or its time is up. A proxy that is
    cut off from the database sends by its old endpoint table, so that its silence is no word."""
    replica = seen.replica
    is_over = replica.drain_by is not None and now >= replica.drain_by
    known = [reading.versions.get((replica.endpoint_id, one.name), 0) for one in reading.proxies]
    is_known = all(version >= replica.drain_version for version in known)
    if not is_over and not (is_known and seen.open == 0) and replica.loading_at is not None:
        return 0
    reason = replica.message or Message("The endpoint does not need it.")
    why = StatusCause(
        Phase.TERMINATE, "replica-ended", shortened(Message.joined([reason, _what_is_cut(seen.open)]), 500)
    )
    ended = end_sessions([replica.session_id], why, now=now)
    return len(ended.cancelled | ended.terminating)


def _what_is_cut(number: int) -> str:
    if number == 1:
        return Message("1 request was cut off.")
    return Message("{number} requests were cut off.", number=number) if number else ""


def end_replica(replica: Replica, reason: str, message: str, *, now: datetime) -> bool:
    """End a replica that serves nobody, at once; returns whether. Before it was ready, it counts as a failed start."""
    was_coming = replica.state in _COMING
    if not move_replicas([replica.pk], State.DRAINING, now=now, reason=reason, message=message, drain_by=now):
        return False
    if was_coming:
        count_failed_start(replica.revision_id, message, now)
    outcome = Outcome.FAILURE if was_coming else Outcome.SUCCESS
    end_sessions(
        [replica.session_id], StatusCause(Phase.RUN, "replica-ended", shortened(message, 500), outcome=outcome), now=now
    )
    note(
        replica.endpoint_id,
        reason,
        now=now,
        message=Message("Replica {number}: {message}", number=replica.number, message=message),
    )
    return True


def count_failed_start(revision_id: UUID, message: str, now: datetime) -> None:
    """Count a failed start of the revision; the next one waits, twice as long as before, at most five minutes."""
    rows = Revision.objects.filter(pk=revision_id)
    rows.update(failed_starts=F("failed_starts") + 1, last_error=message[:500])
    failed = rows.values_list("failed_starts", flat=True).first() or 1
    wait = min(_FIRST_WAIT * 2 ** min(failed - 1, 10), _LONGEST_WAIT)
    rows.update(retry_at=now + wait)


def _is_ending(replica: Replica, now: datetime) -> int:
    """Its session ends, on anybody's order: no app proxy shall send it anything new."""
    session = replica.session
    was_coming = replica.state in _COMING
    about = {"reason": session.status_reason or "session-ended", "message": session.reason_text}
    moved = move_replicas([replica.pk], State.DRAINING, now=now, drain_by=now, **about)
    if moved and was_coming and _is_failure(session.status_reason):
        count_failed_start(replica.revision_id, session.reason_text, now)
    return len(moved)


def _ended(replica: Replica, now: datetime) -> int:
    session, was_coming = replica.session, replica.state in _COMING
    known = {} if replica.reason else {"reason": session.status_reason or "ended", "message": session.reason_text}
    moved = move_replicas([replica.pk], State.ENDED, now=now, **known)
    if moved and was_coming and _is_failure(session.status_reason):
        count_failed_start(replica.revision_id, session.reason_text, now)
    return len(moved)


def _is_failure(code: str) -> bool:
    """Return whether a start that ended so failed: a server that ends by itself is none, however it ended."""
    return reason_of(code).fails or code in ("self-terminated", "task-finished")
