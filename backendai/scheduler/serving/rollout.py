"""Decides which replicas start and which are drained. The goal: the desired number of replicas serves the newest
revision.

The same function replaces lost replicas, moves replicas off drained agents, follows a changed number, and updates
endpoints. An outdated replica is drained only when another one serves in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.scheduler.limits import LIMIT_CODES
from backendai.scheduler.serving.snapshot import (
    DesiredState,
    EndpointView,
    Reason,
    ReplicaState,
    ReplicaView,
    RevisionView,
)

PROOF = timedelta(seconds=60)  # how long a new revision serves before an old replica is drained
MOST_UNPLACED = 2  # the most replicas that wait for an agent: more would only lengthen the queue
FAILED_STARTS, LEAST_REQUESTS, WORSE_BY = 2, 20, 0.05


@dataclass(frozen=True, slots=True)
class Rollout:
    """The decision which replicas of an endpoint start and which are drained.

    ``starts``: pairs of revision and number of replicas. ``drains``: ids of replicas. ``finishes`` and ``rolls_back``:
    the update ends, or is undone. ``reason``: why replicas are missing (None: none are missing).
    """

    starts: tuple[tuple[int, int], ...] = ()
    drains: tuple[UUID, ...] = ()
    reason: Reason | None = None
    finishes: bool = False
    rolls_back: bool = False

    @property
    def is_change(self) -> bool:
        """Whether any action is necessary."""
        return bool(self.starts or self.drains or self.finishes or self.rolls_back)


def decide_rollout(endpoint: EndpointView, desired: int, now: datetime) -> Rollout:
    """Return the actions that lead to ``desired`` replicas of the newest revision without interruption."""
    live = [one for one in endpoint.replicas if one.state not in (ReplicaState.DRAINING, ReplicaState.ENDED)]
    if endpoint.next is not None and (why := _why_roll_back(endpoint, live)) is not None:
        return Rollout(reason=why, rolls_back=True)
    if endpoint.wish != DesiredState.RUN or desired == 0:
        return Rollout(drains=tuple(one.id for one in live), reason=_why_update_rests(endpoint))
    newest = endpoint.newest
    staying, leaving = list[ReplicaView](), list[ReplicaView]()
    for one in live:
        (staying if one.revision == newest and _stays(one) else leaving).append(one)
    if not leaving and len(staying) <= desired:
        starts, held = _starts(endpoint, newest, desired - len(staying), live, now)
        if held is None and not starts and (unplaced := [one for one in staying if one.waits_for]):
            held = no_room(unplaced)
        return Rollout(starts, reason=held, finishes=endpoint.next is not None and _is_done(staying, desired, now))
    if not leaving:
        return Rollout(drains=tuple(one.id for one in _first_to_go(staying, newest)[: len(staying) - desired]))
    return _replace(endpoint, desired, staying, leaving, now)


def _replace(
    endpoint: EndpointView, desired: int, staying: list[ReplicaView], leaving: list[ReplicaView], now: datetime
) -> Rollout:
    live, newest = [*staying, *leaving], endpoint.newest
    takes_over = endpoint.next is None or any(_is_proven(one, now) for one in staying)
    room = desired + endpoint.max_surge - sum(one.is_answering for one in live)
    missing = desired - len(staying) if takes_over else min(endpoint.max_surge, desired) - len(staying)
    missing = max(missing, 1) if not staying else missing
    starts, held = _starts(endpoint, newest, min(missing, max(room, 0)), live, now)
    kept = [one for one in leaving if one.revision == endpoint.current and _stays(one)]
    started = sum(number for _, number in starts)
    more = min(desired - len(kept) - sum(one.serves for one in staying), room - started)
    if not takes_over and more > 0:  # an update does not stop scaling; the known working revision is used
        more_starts, held_too = _starts(endpoint, endpoint.current, more, live, now, already=started)
        starts, held = (*starts, *more_starts), held or held_too
    drains = _drains(endpoint, desired, staying, leaving, now)
    if not starts and not drains and held is None:
        held = _why_it_waits(endpoint, staying, leaving, now)
    return Rollout(starts, drains, held)


def _drains(
    endpoint: EndpointView, desired: int, staying: list[ReplicaView], leaving: list[ReplicaView], now: datetime
) -> tuple[UUID, ...]:
    """Return the ids of the replicas to drain now: replaced ones, surplus ones, and ones that get no requests."""
    good = [one for one in staying if one.serves and (endpoint.next is None or _is_proven(one, now))]
    serving = [one for one in leaving if one.serves]
    takes_over = endpoint.next is None or bool(good)
    useless = [one.id for one in leaving if one.is_coming and takes_over and good]
    least = desired - endpoint.max_unavailable
    spare = max(len(good) + len(serving) - max(least, 0), 0)
    needs_gap = not endpoint.max_surge or any(one.waits_for for one in staying)
    if not good and endpoint.next is not None and not (endpoint.max_unavailable and needs_gap):
        spare = max(len(serving) - desired, 0)  # a smaller number needs no proof
    limit = 1 if endpoint.next is not None else len(serving)
    gone = [one.id for one in _first_to_go(serving, endpoint.newest)[: min(spare, limit)]]
    # A replica that does not answer keeps its slots until another one serves: the replica may recover.
    silent = [one.id for one in leaving if not one.is_answering and len(good) >= desired]
    surplus = max(len(staying) - desired, 0)
    extra = [one.id for one in _first_to_go(staying, endpoint.newest)[:surplus]] if not serving else []
    return tuple(dict.fromkeys([*useless, *gone, *silent, *extra]))


def _starts(
    endpoint: EndpointView, revision: int, missing: int, live: Sequence[ReplicaView], now: datetime, *, already: int = 0
) -> tuple[tuple[tuple[int, int], ...], Reason | None]:
    if missing <= 0:
        return (), None
    results = endpoint.results_of(revision)
    if results.retry_at is not None and now < results.retry_at:
        return (), _after_failures("start-backoff", revision, results, until=results.retry_at)
    unplaced = [one for one in live if one.waits_for]
    number = min(missing, MOST_UNPLACED - len(unplaced) - already)
    if number > 0:
        return ((revision, number),), None
    return (), no_room(unplaced) if unplaced else None


def starts_again(endpoint: EndpointView) -> Reason | None:
    """Return why starts of the newest revision failed while another replica of it starts. None if none failed."""
    revision, results = endpoint.newest, endpoint.results_of(endpoint.newest)
    if not results.failed_starts or not any(one.is_coming and one.revision == revision for one in endpoint.replicas):
        return None
    return _after_failures("starting-again", revision, results, Message("A replica is starting again."))


def _after_failures(
    code: str, revision: int, results: RevisionView, now: str = "", *, until: datetime | None = None
) -> Reason:
    number = results.failed_starts
    failed = (
        Message("1 start of revision {revision} failed.", revision=revision)
        if number == 1
        else Message("{starts} starts of revision {revision} failed.", starts=number, revision=revision)
    )
    data = {"revision": revision, "failed_starts": number}
    return Reason(code, Message.joined([now, failed, results.last_error]), data, until)


def no_room(unplaced: Sequence[ReplicaView]) -> Reason:
    """Return the reason why replicas wait for an agent: their number, and the wait reason of the first one's
    session."""
    first = unplaced[0]
    code = "over-quota" if first.waits_for in LIMIT_CODES else "no-room"
    number = len(unplaced)
    one = Message("1 replica waits for room.")
    waiting = one if number == 1 else Message("{replicas} replicas wait for room.", replicas=number)
    message = Message.joined([waiting, first.wait_message])
    return Reason(code, message, {"waits_for": first.waits_for, "replica": first.number})


def _why_it_waits(
    endpoint: EndpointView, staying: Sequence[ReplicaView], leaving: Sequence[ReplicaView], now: datetime
) -> Reason | None:
    unplaced = [one for one in staying if one.waits_for]
    if unplaced and endpoint.next is not None:
        message = Message.joined(
            [
                Message(
                    "The update to revision {revision} needs room for one more replica, and there is none.",
                    revision=endpoint.next,
                ),
                unplaced[0].wait_message,
                Message("Allow a gap: then an old replica ends first."),
            ]
        )
        return Reason("update-needs-room", message, {"waits_for": unplaced[0].waits_for, "old": len(leaving)})
    if unplaced:
        return no_room(unplaced)
    coming = [one for one in staying if one.is_coming]
    unproven = [one.ready_at for one in staying if one.ready_at and not _is_proven(one, now)]
    until = min(unproven) + PROOF if unproven else None
    message = Message.joined([_what_comes(len(coming)), _what_serves(len(leaving))])
    return Reason("update-holds", message, {"old": len(leaving)}, until)


def _what_comes(number: int) -> Message:
    if number == 0:
        return Message("New replicas must serve for a minute first.")
    if number == 1:
        return Message("A new replica is starting.")
    return Message("{replicas} new replicas are starting.", replicas=number)


def _what_serves(number: int) -> Message:
    if number == 1:
        return Message("An old replica serves meanwhile.")
    return Message("{replicas} old replicas serve meanwhile.", replicas=number)


def _why_update_rests(endpoint: EndpointView) -> Reason | None:
    """Return why the update of an endpoint without replicas pauses: no replica proves that the revision works. None if
    no update is running."""
    if endpoint.next is None:
        return None
    message = Message(
        "Revision {new} replaces revision {old} once it has served for a minute: with the next start or request.",
        new=endpoint.next,
        old=endpoint.current,
    )
    return Reason("update-rests", message, {"revision": endpoint.next})


def _why_roll_back(endpoint: EndpointView, live: Iterable[ReplicaView]) -> Reason | None:
    assert endpoint.next is not None
    new, old = endpoint.results_of(endpoint.next), endpoint.results_of(endpoint.current)
    is_ready = any(one.revision == endpoint.next and one.state == ReplicaState.READY for one in live)
    stays = Message("Revision {revision} stays.", revision=endpoint.current)
    if new.failed_starts >= FAILED_STARTS and not is_ready:
        failed = Message(
            "{starts} starts of revision {revision} failed, none succeeded.",
            starts=new.failed_starts,
            revision=endpoint.next,
        )
        data: dict[str, object] = {"failed_starts": new.failed_starts}
        return Reason("rolled-back", Message.joined([failed, new.last_error, stays]), data)
    if new.requests >= LEAST_REQUESTS and new.errors / new.requests > old.errors / max(old.requests, 1) + WORSE_BY:
        failed = Message(
            "{share} % of {requests} requests to revision {revision} failed.",
            share=f"{100 * new.errors / new.requests:.0f}",
            requests=new.requests,
            revision=endpoint.next,
        )
        data = {"requests": new.requests, "errors": new.errors}
        return Reason("rolled-back", Message.joined([failed, stays]), data)
    return None


def _first_to_go(replicas: Iterable[ReplicaView], newest: int) -> list[ReplicaView]:
    """Return the replicas in the order in which they are drained: unplaced, not ready, on a draining agent, oldest
    revision, fewest open requests."""
    return sorted(
        replicas,
        key=lambda one: (not one.waits_for, one.state == ReplicaState.READY, not one.is_leaving, one.revision, one.open,
                         -one.number),
    )  # fmt: skip


def _stays(one: ReplicaView) -> bool:
    return one.is_answering and not one.is_leaving


def _is_proven(one: ReplicaView, now: datetime) -> bool:
    return one.serves and one.ready_at is not None and now - one.ready_at >= PROOF


def _is_done(staying: Sequence[ReplicaView], desired: int, now: datetime) -> bool:
    return len(staying) >= desired and all(_is_proven(one, now) for one in staying)
