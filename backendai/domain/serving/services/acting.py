"""Carrying out what was decided about an endpoint: numbers, starts, drains, the steps of an update."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F

from backendai.base.core.errors import BackendAIError, Conflict
from backendai.base.core.messages import Message
from backendai.base.db.bulk import update_rows
from backendai.domain.compute.services.launching.create import launch_session
from backendai.domain.compute.spec import MountRequest
from backendai.domain.serving.models import Endpoint, Replica, Revision, State
from backendai.domain.serving.moves import claim, move_replicas, note, note_again, set_desired
from backendai.domain.serving.reading import EndpointsReading
from backendai.domain.serving.services.checks import agents_that_serve, session_spec
from backendai.domain.serving.services.notices import Kind, tell_owner
from backendai.domain.serving.services.reconcile import count_failed_start
from backendai.domain.serving.spec import RevisionSpec
from backendai.scheduler.serving.health import Health, health_of, reached_by
from backendai.scheduler.serving.rollout import Rollout, decide_rollout
from backendai.scheduler.serving.scale import Scale, decide_scale
from backendai.scheduler.serving.snapshot import DesiredState, EndpointView, Reason

logger = logging.getLogger(__name__)
_TOLD_FAILURES = 3
_BY_ITSELF = frozenset({"not-answering", "moved"})  # what nobody ordered and no other decision says

# Why a number stays as it is although the load, or an owner, may expect another one.
HOLDS = frozenset({"at-max", "blind", "metric-unknown", "in-window", "cooling-down", "starting-already", "rule-holds"})


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided about one endpoint now."""

    scale: Scale
    rollout: Rollout


def decide(view: EndpointView, now: datetime) -> Decision:
    """Return what is to be done about an endpoint; changes nothing."""
    scale = decide_scale(view, now)
    return Decision(scale, decide_rollout(view, scale.desired, now))


def act(reading: EndpointsReading) -> int:
    """Decide about each endpoint and carry it out; returns how many changed. An endpoint that fails is logged and does
    not keep the others from their turn."""
    _keep_course(reading)
    changed = 0
    for pk, view in reading.views.items():
        try:
            changed += _act(reading.endpoints[pk], reading, decide(view, reading.now))
            _tell_of_health(reading.endpoints[pk], view, reading.now)
        except Exception:
            logger.exception("endpoint %s could not be served by this pass", pk)
    return changed


def _act(endpoint: Endpoint, reading: EndpointsReading, decision: Decision) -> bool:
    now, scale, rollout = reading.now, decision.scale, decision.rollout
    changes_number, refused = scale.desired != endpoint.desired, None
    if scale.panic_until != endpoint.panic_until and not changes_number:
        Endpoint.objects.filter(pk=endpoint.pk, version=endpoint.version).update(panic_until=scale.panic_until)
    if changes_number or rollout.is_change:
        with transaction.atomic():
            if not claim(endpoint):
                return False  # somebody changed the endpoint since it was read: the next pass decides anew
            refused = _carry_out(endpoint, reading, decision)
    _note_reasons(endpoint, scale, rollout, refused, now)
    return bool(rollout.drains or rollout.starts or changes_number)


def _carry_out(endpoint: Endpoint, reading: EndpointsReading, decision: Decision) -> Reason | None:
    """Write what was decided; returns the limit that refuses a replica for now."""
    now, scale, rollout = reading.now, decision.scale, decision.rollout
    if scale.desired != endpoint.desired:
        about = {"message": scale.reason.message, "data": scale.reason.data}
        set_desired(endpoint, scale.desired, now=now, panic_until=scale.panic_until, code=scale.reason.code, **about)
    if rollout.rolls_back or rollout.finishes:
        _end_update(endpoint, rollout, now)
    drain(reading, rollout.drains, scale.reason)
    for number, count in rollout.starts:
        revision = _revision(endpoint, number)
        for _ in range(count):
            if (refused := start_replica(endpoint, revision, now=now)) is not None:
                return refused
    return None


def drain(reading: EndpointsReading, replica_ids: Sequence[UUID], scaling: Reason) -> None:
    """Let replicas get no new requests; they end when their last one is answered. App proxies may send to one that is
    LOADING as soon as their own probe succeeded. ``scaling``: why there are as many replicas as there are."""
    now = reading.now
    for pk in replica_ids:
        replica = reading.seen[pk].replica
        until = now if replica.state == State.STARTING else now + replica.revision.drain_timeout
        if replica.session.ends_at is not None:
            until = min(until, replica.session.ends_at)
        reason, message = _why_it_goes(reading.views[replica.endpoint_id], pk, scaling)
        move_replicas([pk], State.DRAINING, now=now, reason=reason, message=message, drain_by=until)
        if reason in _BY_ITSELF:
            told = Message("Replica {number}: {message}", number=replica.number, message=message)
            note(replica.endpoint_id, reason, now=now, message=told)


def _why_it_goes(view: EndpointView, replica_id: UUID, scaling: Reason) -> tuple[str, str]:
    """Return the code and the sentence of a replica that is drained."""
    (one,) = [one for one in view.replicas if one.id == replica_id]
    if view.wish != DesiredState.RUN:
        return "endpoint-stopped", scaling.message
    if one.revision != view.newest:
        return "replaced", Message("Revision {revision} takes its place.", revision=view.newest)
    if not one.is_answering:
        return "not-answering", Message("It does not answer, and another replica serves in its place.")
    if one.is_leaving:
        text = "Its agent is being drained or its longest time is over, and another replica serves in its place."
        return "moved", Message(text)
    return "scaled", scaling.message


def start_replica(endpoint: Endpoint, revision: Revision, *, now: datetime) -> Reason | None:
    """Launch the session of a new replica, both in one transaction; returns the limit that refuses it for now. Another
    refusal counts as a failed start."""
    number = Endpoint.objects.values_list("last_number", flat=True).get(pk=endpoint.pk) + 1
    try:
        with transaction.atomic():
            spec = session_spec(
                _spec_of(revision),
                project=str(endpoint.project_id),
                resource_group=endpoint.resource_group.name,
                agents=agents_that_serve(endpoint.resource_group),
                name=f"{endpoint.name}-{endpoint.pk.hex[:6]}-{number}",
            )
            launched = launch_session(endpoint.owner, spec, idempotency_key=f"endpoint:{endpoint.pk}:{number}")
            Replica.objects.create(
                endpoint=endpoint, revision=revision, number=number, session=launched.session, created_at=now
            )
    except BackendAIError as error:
        message = Message.joined([Message("A replica could not be launched."), error.message])
        if error.code == "name-taken":  # by a session of its owner: the next try has another name
            _use_number(endpoint, number)
        # A conflict is one with the moment, such as a limit of sessions that wait: the revision did nothing wrong.
        if isinstance(error, Conflict):
            return Reason("over-quota", message)
        count_failed_start(revision.pk, error.message, now)
        note(endpoint.pk, error.code, now=now, message=message, before=endpoint.desired, after=endpoint.desired)
    _use_number(endpoint, number)
    return None


def _use_number(endpoint: Endpoint, number: int) -> None:
    """Give the number of a replica to no other one; plans from an earlier reading change nothing any more."""
    Endpoint.objects.filter(pk=endpoint.pk).update(last_number=number, version=F("version") + 1)


def _spec_of(revision: Revision) -> RevisionSpec:
    return RevisionSpec(
        image=revision.image.name,
        command=revision.command,
        port=revision.port,
        environ=revision.environ,
        resources=revision.slots,
        cluster_size=revision.cluster_size,
        cluster_mode=revision.cluster_mode,
        model_name=revision.model_name,
        mounts=[MountRequest(**one) for one in revision.mounts],
    )


def _end_update(endpoint: Endpoint, rollout: Rollout, now: datetime) -> None:
    seen = Endpoint.objects.filter(pk=endpoint.pk, next=endpoint.next_id)
    number = endpoint.next.number if endpoint.next else 0
    if rollout.rolls_back:
        changed = seen.update(next=None, version=F("version") + 1)
        code, message = "rolled-back", rollout.reason.message if rollout.reason else ""
        tell_owner(endpoint, Kind.ROLLED_BACK, message, now=now)
    else:
        changed = seen.update(next=None, current=endpoint.next_id, version=F("version") + 1)
        code, message = "updated", Message("All replicas run revision {number}.", number=number)
    if changed:
        note(endpoint.pk, code, now=now, message=message, before=endpoint.desired, after=endpoint.desired)


def _revision(endpoint: Endpoint, number: int) -> Revision:
    for one in (endpoint.next, endpoint.current):
        if one is not None and one.number == number:
            return one
    return endpoint.revisions.get(number=number)


def _note_reasons(endpoint: Endpoint, scale: Scale, rollout: Rollout, refused: Reason | None, now: datetime) -> None:
    """Record why there are not more, or fewer, replicas: once, when that changes. App proxies learn it, too."""
    found: dict[str, Reason] = {}
    if scale.desired == endpoint.desired and scale.reason.code in HOLDS:
        found["scale"] = scale.reason
    if (why := refused or rollout.reason) is not None and not rollout.rolls_back:
        found["rollout"] = why
    told = {part: reason.code for part, reason in found.items()}
    if told == endpoint.told:
        return
    with transaction.atomic():
        Endpoint.objects.filter(pk=endpoint.pk).update(told=told, version=F("version") + 1)
        for part, reason in found.items():
            if endpoint.told.get(part) != reason.code:
                until = {"until": reason.until.isoformat()} if reason.until else {}
                note_again(
                    endpoint.pk,
                    reason.code,
                    now=now,
                    message=reason.message,
                    data={**reason.data, **until},
                    number=scale.desired,
                )


def _tell_of_health(endpoint: Endpoint, view: EndpointView, now: datetime) -> None:
    """Tell the owner when no replica answers any more, and when starts fail again and again."""
    failed = view.results_of(view.newest)
    if failed.failed_starts >= _TOLD_FAILURES:
        message = Message.joined([Message("{number} starts failed.", number=failed.failed_starts), failed.last_error])
        tell_owner(endpoint, Kind.BACKING_OFF, message, now=now)
    is_silent = health_of(view) == Health.UNAVAILABLE and not failed.failed_starts
    if is_silent:
        tell_owner(endpoint, Kind.UNAVAILABLE, Message("It is being replaced."), now=now)


def _keep_course(reading: EndpointsReading) -> None:
    """Write the peaks of load, and of replicas that answer, that have changed, in one statement."""
    reached = {pk: reached_by(view) for pk, view in reading.views.items()}
    rows = reading.endpoints.items()
    changed = [pk for pk, row in rows if (reading.peaks[pk], reached[pk]) != (row.peaks, row.reached)]
    peaks, numbers = [json.dumps(reading.peaks[pk]) for pk in changed], [reached[pk] for pk in changed]
    update_rows(Endpoint._meta.db_table, changed, {"peaks": ("jsonb", peaks), "reached": ("smallint", numbers)})
