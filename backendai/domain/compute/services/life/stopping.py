"""Stops running sessions so that they can be resumed: their agents store their homes in a folder of the owner, and only
then the kernels end and their slots become free.

The programs stand still while the homes are stored. If that fails or is cancelled, they go on. The program of a batch
session ends first: from then on the stop cannot be cancelled, and its kernel's end counts once its home is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message, shortened
from backendai.base.core.slots import format_size
from backendai.base.db.bulk import among
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import STORE, StoreResult, StoreWork
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.applicable import lowest_of_user
from backendai.domain.activity.jobs import finish_job, report_progress, start_job, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit, audit_each
from backendai.domain.cluster.capabilities import why_not
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import Ending, ending_of, hint_job, is_outdated, update_agent
from backendai.domain.compute.models import ComputeSession, HomeStore, Kernel, SessionMount
from backendai.domain.compute.reasons import STOPPED
from backendai.domain.compute.services.images.commits import refuse_while_saved
from backendai.domain.compute.services.life.ending import hint_stops
from backendai.domain.compute.services.life.home_retention import refuse_while_home_is_kept
from backendai.domain.compute.services.notices.owners import withdraw_warnings
from backendai.domain.compute.services.requests.mounts import stored_home
from backendai.domain.compute.services.status.moves import StatusCause, move, move_kernels, touch
from backendai.domain.compute.status import Outcome, Phase, Status
from backendai.domain.storage.limits import room_left
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services.folders import add_folder
from backendai.domain.storage.status import FolderStatus, Rights, Usage
from backendai.domain.storage.transitions import transition

CANCELLED = Message("Cancelled: the session goes on.")
_KEY_LENGTH = 12
_LET_GO_WITHIN = timedelta(seconds=10)
_MOST_AT_ONCE = 20  # each asks a file server for a folder
_PASSING = frozenset({"not-running", "being-saved", "home-being-kept", "storage-silent", "stop-cancelled"})
_UNUSED_AFTER = timedelta(hours=1)
_Store = HomeStore.Status


def obstacle_to_stop(session: ComputeSession, kernels: Sequence[Kernel]) -> tuple[str, str] | None:
    """Return why the session cannot be stopped now, as code and message; None if it can."""
    if not session.can_stop:
        text = Message("Only interactive sessions can be stopped, and batch sessions launched with May be stopped.")
        return "kind-not-stopped", text
    if session.status != Status.RUNNING or any(one.status != Status.RUNNING or not one.agent for one in kernels):
        return "not-running", Message("Only a running session can be stopped.")
    for agent in {one.agent_id: one.agent for one in kernels if one.agent}.values():
        if why := why_not(agent, Capability.HOMES):
            return "homes-not-stored", why
        if is_outdated(agent, STORE):
            return "agent-outdated", update_agent(agent)
        if agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
            return "agent-silent", Message("Agent {agent} is not reachable.", agent=agent.name)
    return None


def stop_session(user: User, session: ComputeSession, *, now: datetime) -> BackgroundJob:
    """Begin to stop a session; returns the job that shows the progress. The caller checks that the user may see it.

    Raises Conflict if it cannot be stopped now, no storage host can take its homes, or the owner's folders are full.
    """
    plan = plan_stop(session, now=now)
    with transaction.atomic():
        job = begin_stop(plan, StatusCause(Phase.RUN, STOPPED, Message("Stopped by {user}.", user=user.email)), now=now)
        names = {} if session.owner_id == user.pk else both_names(user, session.owner)
        audit(user.pk, "session.stop", "session", [session.pk], name=session.name, **names)
    return job


@dataclass(frozen=True, slots=True)
class StopPlan:
    """What a stop needs: the folder for the homes, and the bytes that the owner's policies leave (None: unlimited)."""

    session: ComputeSession
    kernels: Sequence[Kernel]
    folder: Folder
    room: int | None


def plan_stop(session: ComputeSession, *, now: datetime) -> StopPlan:
    """Check whether the session can be stopped, and make the folder for its homes at the first stop. May ask a file
    server, so call it outside of transactions. Raises like ``stop_session``."""
    kernels = list(session.kernels.select_related("agent").order_by("rank"))
    if obstacle := obstacle_to_stop(session, kernels):
        raise Conflict(obstacle[1], code=obstacle[0])
    refuse_while_saved(session)
    refuse_while_home_is_kept(session)
    ended = HomeStore.objects.filter(session=session, job__status=BackgroundJob.Status.CANCELLED)
    if ended.filter(heard_at__gt=now - _LET_GO_WITHIN).exists():  # else its end would let the next one's kernel go on
        text = Message("The agent still lets the programs go on after a cancelled stop. Try again in a few seconds.")
        raise Conflict(text, code="stop-cancelled")
    _refuse_beyond_limit(session.owner)
    folder = _folder_of(session, kernels, now)
    room = room_left(session.owner, without=folder)
    if room == 0:
        raise Conflict(
            "The folders of {owner} are full, so the home cannot be stored. Delete files or folders first.",
            owner=session.owner.email,
            code="folder-bytes",
        )
    return StopPlan(session, kernels, folder, room)


def begin_stop(plan: StopPlan, why: StatusCause, *, now: datetime) -> BackgroundJob:
    """Begin to stop a session for this reason, in the caller's transaction. Raises Conflict if it no longer runs, or
    its owner has as many stopped sessions as the policies allow."""
    session = plan.session
    _refuse_beyond_limit(session.owner, waits=True)
    if not move([session.pk], Status.STOPPING, why, now=now, only_from=[Status.RUNNING]):
        raise Conflict("Only a running session can be stopped.", code="not-running")
    withdraw_warnings([session.pk])
    _note_folder(session, plan.folder, now)
    return _order(plan, now)


def stop_each(session_ids: Sequence[UUID], cause: Callable[[UUID], StatusCause | None], *, now: datetime) -> set[UUID]:
    """Begin to stop the running ones of these sessions, at most ``_MOST_AT_ONCE``; returns the ids of all that can be
    stopped, now or by a later call. ``cause``: called in the transaction of each stop; None: the session goes on.

    Three queries, and a fixed number for each stop.
    """
    if not session_ids:
        return set()
    rows = ComputeSession.objects.running().filter(pk__in=among(session_ids)).select_related("owner")
    found = {one.pk: one for one in rows.prefetch_related("kernels__agent")}
    able = [found[pk] for pk in session_ids if pk in found and not obstacle_to_stop(found[pk], found[pk].kernels.all())]
    some, later = able[:_MOST_AT_ONCE], able[_MOST_AT_ONCE:]
    return {one.pk for one in later} | {one.pk for one in some if _stop(one, cause, now)}


def _stop(session: ComputeSession, cause: Callable[[UUID], StatusCause | None], now: datetime) -> bool:
    try:
        plan = plan_stop(session, now=now)
        with transaction.atomic():
            if why := cause(session.pk):
                begin_stop(plan, why, now=now)
    except Conflict as error:
        return error.code in _PASSING
    return True


def stores_wanted() -> QuerySet[HomeStore]:
    """Return the unfinished orders to store homes whose jobs are running and not cancelled in time."""
    in_time = Q(job__cancel_requested_at=None) | Q(heard_at__isnull=False, session__may_be_stopped=True)
    return HomeStore.objects.filter(in_time, job__status=BackgroundJob.Status.RUNNING, status=_Store.STORING)


def store_spec(agent: Agent, store_id: UUID) -> NodeJobSpec:
    """Return an agent's order to store a home. Raises NotFound if the order is obsolete."""
    rows = stores_wanted().filter(pk=store_id, agent=agent).select_related("kernel", "folder__host", "session")
    if (store := rows.first()) is None:
        raise NotFound("This home is not wanted from this agent.")
    grace = stop_grace(store.session)
    work = StoreWork(
        kernel_id=store.kernel_id,
        generation=store.generation,
        home=stored_home(store.folder, store.kernel.hostname),
        most_bytes=store.most_bytes,
        timeout=float(settings.HOME_STORE_TIMEOUT),
        grace=grace,
    )
    return NodeJobSpec(
        kind=STORE,
        job_id=store.pk,
        seconds=settings.HOME_STORE_TIMEOUT + (grace or 0.0),
        has_started=store.heard_at is not None,
        work=work.model_dump(mode="json"),
    )


def store_reported(agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
    """Apply an agent's report about a home; returns whether the portal still wants it. After the last home of a session
    its kernels end. Raises ValueError for an invalid result."""
    store = stores_wanted().filter(pk=report.job_id, agent=agent).select_related("kernel", "session").first()
    if store is None:
        return HomeStore.objects.filter(pk=report.job_id, agent=agent, status=_Store.DONE).exists()
    if report.state == JobState.FAILED:
        is_over = store.session.status != Status.STOPPING
        give_up_stop(store.session_id, report.full_message, now=now, is_cancelled=is_over)
        return False
    done = StoreResult.model_validate(report.result) if report.state == JobState.DONE else None
    with transaction.atomic():
        ComputeSession.objects.select_for_update(of=("self",)).get(pk=store.session_id)
        columns = {"status": _Store.DONE, "size_bytes": done.size_bytes} if done else {"message": report.full_message}
        HomeStore.objects.filter(pk=store.pk, status=_Store.STORING).update(heard_at=now, **columns)
        if done is None and store.job_id:
            touch([store.session_id])
            goes_on = report_progress(store.job_id, report.progress, report.full_message, now=now)
            return goes_on or cannot_be_cancelled(store)
        if not HomeStore.objects.filter(session=store.session_id, status=_Store.STORING).exists():
            _end_kernels(store, now)
    return True


def stop_grace(session: ComputeSession) -> float | None:
    """Return the seconds in which the session's program has to end when it is stopped; None: it only stands still."""
    return None if session.kind.stops else float(settings.STOP_GRACE)


def cannot_be_cancelled(store: HomeStore) -> bool:
    """Return whether an agent already ends the session's program, which cannot be undone."""
    return store.heard_at is not None and stop_grace(store.session) is not None


def give_up_stop(session_id: UUID, message: str, *, now: datetime, is_cancelled: bool = False) -> bool:
    """Let a stopping session go on, with this message in its history; returns whether it was stopping."""
    with transaction.atomic():
        rows = HomeStore.objects.filter(session=session_id, status=_Store.STORING)
        jobs = {pk for pk in rows.values_list("job", flat=True) if pk}
        if not rows.update(status=_Store.GIVEN_UP, message=shortened(message), heard_at=now):
            return False
        for job in jobs:
            if is_cancelled:
                stop_job(job, message=message, now=now)
            else:
                finish_job(job, message=message, now=now, failed=True)
        outcome = Outcome.SKIPPED if is_cancelled else Outcome.FAILURE
        why = StatusCause(Phase.RUN, "stop-given-up", message, outcome=outcome)
        only = [Status.STOPPING]
        move([session_id], Status.RUNNING, why, now=now, only_from=only, started_at=F("started_at"))
    return True


def follow_stores(now: datetime) -> int:
    """Give up the stops whose agents can no longer store a home; returns how many sessions."""
    live = HomeStore.objects.filter(status=_Store.STORING).select_related("job", "agent", "kernel", "session")
    over: dict[UUID, tuple[str, bool]] = {}
    for store in live.order_by("created_at", "pk"):
        if (found := _end_of(store, now)) is not None:
            over.setdefault(store.session_id, found)
    return sum(give_up_stop(pk, text, now=now, is_cancelled=stopped) for pk, (text, stopped) in over.items())


def discard_homes(now: datetime) -> int:
    """Move the stored homes of ended sessions to the trash, where their owners find them for a time; returns how
    many."""
    needed = SessionMount.objects.filter(folder=OuterRef("pk"), released_at=None)
    unused = Folder.objects.filter(usage=Usage.HOME, status=FolderStatus.READY).exclude(Exists(needed))
    ended = Q(mounts__released_at__isnull=False) | Q(changed_at__lt=now - _UNUSED_AFTER)
    names = dict(unused.filter(ended).values_list("pk", "name"))
    moved = transition(names, FolderStatus.TRASHED, now=now, trashed_at=now) if names else set()
    audit_each(
        None, "folder.trash", "folder", {pk: {"name": names[pk], "by": "the end of its session"} for pk in moved}
    )
    return len(moved)


def most_stopped(owner: User) -> int | None:
    """Return how many stopped sessions the owner may have; None: no limit. Raises Conflict if none is allowed."""
    most = lowest_of_user(owner, "max_stopped_sessions")
    if most == 0:
        text = Message("The policies of the owner allow no stopped sessions. An administrator can change that.")
        raise Conflict(text, code="too-many-stopped", limit=most)
    return most


def _refuse_beyond_limit(owner: User, *, waits: bool = False) -> None:
    """Raise Conflict if the owner may have no more stopped sessions. ``waits``: for concurrent stops; in a
    transaction."""
    if (most := most_stopped(owner)) is None:
        return
    if waits:
        User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    number = ComputeSession.objects.filter(owner=owner, status__in=[Status.STOPPING, Status.STOPPED]).count()
    if number >= most:
        text = Message("The owner may have {most} stopped sessions at once. Resume or terminate one first.", most=most)
        raise Conflict(text, code="too-many-stopped", limit=most)


def _folder_of(session: ComputeSession, kernels: Sequence[Kernel], now: datetime) -> Folder:
    """Return the folder for the session's homes; creates it at the first stop. Raises Conflict."""
    agents = {one.agent_id for one in kernels}
    hosts = StorageHost.objects.filter(is_enabled=True)
    for agent in agents:
        hosts = hosts.filter(on_agents__agent=agent, on_agents__fault="")
    mounted = session.mounts.filter(holds_homes=True).select_related("folder__host").first()
    folder: Folder | None = mounted.folder if mounted else None
    host = hosts.filter(pk=folder.host_id).first() if folder else hosts.order_by("-is_default", "name").first()
    if host is None:
        text = Message("No storage host can be reached from the agents of this session, so its home cannot be stored.")
        raise Conflict(text, code="no-storage-host")
    if folder is None:
        name = f"stopped-{session.pk.hex[:_KEY_LENGTH]}"
        folder = Folder.objects.filter(user=session.owner, name=name, usage=Usage.HOME, host=host).live().first()
    if folder is None:
        folder = Folder(name=name, host=host, user=session.owner, usage=Usage.HOME)
        folder = add_folder(session.owner, folder, now=now)
    if folder.status != FolderStatus.READY:
        text = Message("Storage host {host} does not answer. Try again in a minute.", host=host.name)
        raise Conflict(text, code="storage-silent")
    return folder


def _note_folder(session: ComputeSession, folder: Folder, now: datetime) -> None:
    values = {"folder": folder, "folder_name": folder.name, "rights": Rights.EDIT, "created_at": now}
    _, is_new = SessionMount.objects.update_or_create(session=session, holds_homes=True, defaults=values)
    if is_new:
        ComputeSession.objects.filter(pk=session.pk).update(mount_count=F("mount_count") + 1)


def _order(plan: StopPlan, now: datetime) -> BackgroundJob:
    session = plan.session
    longest = timedelta(seconds=settings.HOME_STORE_TIMEOUT + (stop_grace(session) or 0.0))
    job = start_job(
        STORE,
        f"{session.name} ({session.pk.hex[:_KEY_LENGTH]})",
        Message("Sending to the agent."),
        now=now,
        owner_id=session.owner_id,
        silence_limit=longest,
        longest=longest,
    )
    for kernel in plan.kernels:
        about = {"kernel": kernel, "generation": kernel.generation, "agent": kernel.agent, "created_at": now}
        store = HomeStore.objects.create(session=session, job=job, folder=plan.folder, most_bytes=plan.room, **about)
        if kernel.agent:
            hint_job(STORE, store.pk, kernel.agent)
    return job


def _end_kernels(store: HomeStore, now: datetime) -> None:
    """Order the end of a session's kernels, whose homes are all stored."""
    kernels = Kernel.objects.filter(session=store.session_id, status=Status.RUNNING)
    ids = list(kernels.values_list("pk", flat=True))
    move_kernels(ids, Status.TERMINATING, reason=STOPPED, now=now, forced_at=now)
    hint_stops([store.session_id])
    sizes = HomeStore.objects.filter(job=store.job_id).values_list("size_bytes", flat=True)
    size = sum(one or 0 for one in sizes)
    Folder.objects.filter(pk=store.folder_id).update(used_bytes=size, measured_at=now)
    if store.job_id:
        finish_job(store.job_id, message=Message("{size} are stored.", size=format_size(size)), now=now)


def _end_of(store: HomeStore, now: datetime) -> tuple[str, bool] | None:
    """Return the message with which this order is given up, and whether it was cancelled; None while it may go on."""
    kernel, session = store.kernel, store.session
    if session.status != Status.STOPPING:
        return Message("The session is being ended."), True
    if kernel.status != Status.RUNNING or kernel.generation != store.generation:
        return Message("A kernel ended before its home was stored. The session was not stopped."), False
    # A cancelled store needs no last word: the agent lets the kernel go on at its next report or sync.
    match ending_of(store.job, store.agent, STORE, is_waiting=True, heard_at=store.heard_at, now=now):
        case None:
            return None
        case Ending.CANCELLED if cannot_be_cancelled(store):
            return None
        case Ending.CANCELLED:
            return CANCELLED, True
        case Ending.AGENT_LOST:
            return Message("The agent was lost before the home was stored."), False
        case Ending.AGENT_OUTDATED if store.agent:
            return update_agent(store.agent), False
    return Message("The home was not stored in time, so the session goes on."), False


def stopping_now(session_ids: Collection[UUID]) -> dict[UUID, BackgroundJob]:
    """Return the jobs that store the homes of these sessions, by session."""
    rows = HomeStore.objects.filter(session__in=session_ids, status=_Store.STORING, job__isnull=False)
    return {row.session_id: row.job for row in rows.select_related("job") if row.job}
