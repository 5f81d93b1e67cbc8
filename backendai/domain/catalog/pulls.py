"""Pulls an image to agents before a session needs it: one background job, with a row for each agent.

Agents get their pulls with a sync, pull with their own engine, and report progress. A row ends by the agent's report,
the job's cancellation or time limit, or the loss of the agent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum

from backendai.base.core.durations import describe_duration
from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import PULL, PullWork
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import finish_job, refuse_second, report_progress, start_job, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image, ImagePull
from backendai.domain.catalog.registry_access import access_for
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.node_jobs import Ending, ending_of, hint_job, is_outdated, update_agent

PULL_JOB = PULL
MOST_AGENTS = 1000
_LONGEST = timedelta(hours=2)
_SPEAK_EVERY = timedelta(seconds=1)
_Status = ImagePull.Status
_NOT_OVER = (_Status.WAITING, _Status.PULLING)
_NAMED_IN_MESSAGE = 3


def start_pull(
    user: User, image: Image, *, agents: Collection[Agent], groups: Collection[ResourceGroup], now: datetime
) -> BackgroundJob:
    """Start a job that pulls the image to these agents, and to suitable agents of these groups; return it.

    Raises UserError if a named agent cannot pull it or no agent is left, and Conflict while another pull of it runs.
    """
    if image.is_built_here:
        text = Message(
            "{image} is built on the agents themselves (manage.py build_images); it is in no registry.",
            image=image.name,
        )
        raise UserError(text, field="image", code="image-built-here")
    if image.is_on_nodes_only:
        text = Message(
            "{image} was created from a session and is on its agent only; it is in no registry.", image=image.name
        )
        raise UserError(text, field="image", code="image-on-node")
    chosen = _chosen(image, agents, groups)
    with transaction.atomic():
        refuse_second(PULL_JOB, image.name)
        job = start_job(
            PULL_JOB,
            image.name,
            Message("Sending to the agents."),
            now=now,
            owner_id=user.pk,
            total=len(chosen),
            unit="agents",
            silence_limit=_LONGEST,
            longest=_LONGEST,
        )
        pulls = ImagePull.objects.bulk_create(ImagePull(job=job, image=image, agent=agent) for agent in chosen)
        names = [agent.name for agent in chosen]
        audit(user.pk, "image.pull", "image", [image.pk], name=image.name, agents=names[:50], number=len(names))
        for pull in pulls:
            hint_job(PULL, pull.pk, pull.agent)
    return job


def pulls_of(image: Image) -> tuple[BackgroundJob | None, list[ImagePull]]:
    """Return the newest pull job of this image, with its row for each agent."""
    newest = ImagePull.objects.filter(image=image).order_by("-job__created_at").select_related("job").first()
    if newest is None:
        return None, []
    return newest.job, list(ImagePull.objects.filter(job=newest.job).select_related("agent").order_by("agent__name"))


def pulls_wanted() -> QuerySet[ImagePull]:
    """Return the pulls that agents should run now."""
    running = Q(job__status=BackgroundJob.Status.RUNNING, job__cancel_requested_at=None)
    return ImagePull.objects.filter(running, status__in=_NOT_OVER)


def pull_spec(agent: Agent, pull_id: UUID) -> NodeJobSpec:
    """Return the order of a pull for this agent, with the registry account.

    Raises NotFound if the pull is not (or no longer) for this agent.
    """
    pull = pulls_wanted().filter(pk=pull_id, agent=agent).select_related("image", "agent__resource_group").first()
    if pull is None:
        raise NotFound("This pull is not meant for this agent.")
    image = pull.image
    work = PullWork(image=image.reference, digest=image.digest, access=access_for(image))
    return NodeJobSpec(
        kind=PULL,
        job_id=pull.pk,
        seconds=pull.agent.resource_group.pull_timeout.total_seconds(),
        has_started=pull.status != _Status.WAITING,
        work=work.model_dump(),
    )


def pull_heard(agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
    """Save an agent's report on its pull; returns whether the pull is still wanted.

    Needs no transaction: of the two last reports, the later sees both rows and closes the job.
    """
    row = _live().filter(pk=report.job_id, agent=agent).first()
    if row is None or not row.job.is_running:
        return False
    state, share = _state_after(report, row.job), report.progress
    rows = ImagePull.objects.filter(pk=row.pk, status__in=_NOT_OVER)
    rows.update(
        status=state, message=report.full_message, progress=1.0 if state == _Status.DONE else share, heard_at=now
    )
    if state != row.status or now - row.job.updated_at >= _SPEAK_EVERY:
        _follow(row.job, now)
    return state != _Status.CANCELLED


def follow_pulls(now: datetime) -> int:
    """End pulls whose agent is lost, job cancelled or time over, and close finished jobs.

    Returns the number of ended pulls.
    """
    ended = 0
    for pull in _live().select_related("agent"):
        status, message = _end_of(pull, now)
        if status:
            still = ImagePull.objects.filter(pk=pull.pk, status=pull.status, heard_at=pull.heard_at)
            ended += still.update(status=status, message=message)
    for job in BackgroundJob.objects.running().filter(kind=PULL_JOB):
        if not ImagePull.objects.filter(job=job, status__in=_NOT_OVER).exists():
            _follow(job, now)
    return ended


def _chosen(image: Image, agents: Collection[Agent], groups: Collection[ResourceGroup]) -> list[Agent]:
    for agent in agents:
        if problem := _obstacle(image, agent):
            raise UserError(
                "Agent {agent} {problem}.", agent=agent.name, problem=problem, field="agents", code="agent-cannot-pull"
            )
    of_groups = Agent.objects.answering().filter(resource_group__in=groups).select_related("resource_group")
    fitting = [agent for agent in of_groups if not _obstacle(image, agent)]
    chosen = {agent.pk: agent for agent in (*agents, *fitting)}
    if not chosen:
        raise UserError(
            "None of the selected agents is reachable and has a container engine for this image.",
            field="agents",
            code="no-agent",
        )
    if len(chosen) > MOST_AGENTS:
        text = Message(
            "{number} agents at once: choose at most {most_agents}.", number=len(chosen), most_agents=MOST_AGENTS
        )
        raise UserError(text, field="agents", code="too-many", limit=MOST_AGENTS)
    return sorted(chosen.values(), key=lambda agent: agent.name)


def _obstacle(image: Image, agent: Agent) -> str:
    """Return why this agent cannot pull the image; empty if it can."""
    if agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
        return Message("is not reachable")
    if Capability.IMAGES not in capabilities_of(agent):
        return Message("has no container engine")
    if is_outdated(agent, PULL):
        return Message("runs an earlier version of the platform; update it")
    if agent.low_disk:
        return Message("is short of disk space")
    if image.architecture and agent.architecture and image.architecture != agent.architecture:
        return Message(
            "is {architecture}, and the image is for {needed}",
            architecture=agent.architecture,
            needed=image.architecture,
        )
    return ""


def _live() -> QuerySet[ImagePull]:
    return ImagePull.objects.filter(status__in=_NOT_OVER).select_related("job").order_by()


def _state_after(report: NodeJobReport, job: BackgroundJob) -> str:
    if report.state == JobState.RUNNING:
        return _Status.CANCELLED if job.cancel_requested_at else _Status.PULLING
    return _Status.DONE if report.state == JobState.DONE else _Status.FAILED


def _end_of(pull: ImagePull, now: datetime) -> tuple[str, str]:
    """Return the status in which the portal ends a pull, and the reason; empty while the pull may continue."""
    is_waiting, job = pull.status == _Status.WAITING, pull.job
    ending = ending_of(job, pull.agent, PULL, is_waiting=is_waiting, heard_at=pull.heard_at, now=now)
    match ending:
        case None:
            return "", ""
        case Ending.JOB_OVER:
            return _Status.CANCELLED, Message("The job is over.")
        case Ending.CANCELLED:
            return _Status.CANCELLED, ""
        case Ending.AGENT_LOST:
            return _Status.FAILED, Message("The agent was lost meanwhile.")
        case Ending.AGENT_OUTDATED:
            return _Status.FAILED, update_agent(pull.agent)
        case Ending.LATE:
            took = describe_duration((job.deadline_at or now) - job.created_at)
            state = Message("not even started") if is_waiting else Message("not done")
            return _Status.FAILED, Message("It was {state} after {took}.", state=state, took=took)


def _follow(job: BackgroundJob, now: datetime) -> None:
    """Update the progress of the whole job, or close it if every row has ended."""
    rows = ImagePull.objects.filter(job=job)
    is_over = ~Q(status__in=_NOT_OVER)
    facts = rows.aggregate(number=Count("pk"), over=Count("pk", filter=is_over), known=Sum("progress", filter=~is_over))
    share = (facts["over"] + (facts["known"] or 0.0)) / (facts["number"] or 1)
    message = Message("{over} of {number} agents are done.", over=facts["over"], number=facts["number"])
    report_progress(job.pk, share, message, now=now, done=facts["over"], total=facts["number"])
    if facts["over"] == facts["number"]:
        _close(job, list(rows.select_related("agent").order_by("agent__name")), now)


def _close(job: BackgroundJob, pulls: Sequence[ImagePull], now: datetime) -> None:
    there = [pull.agent.name for pull in pulls if pull.status == _Status.DONE]
    failed = [pull.agent.name for pull in pulls if pull.status == _Status.FAILED]
    result: dict[str, Any] = {"parts": [_part(pull) for pull in pulls]}
    message: str = (
        Message("{there} of {pulls} agents have it.", there=len(there), pulls=len(pulls))
        if pulls
        else Message("The image was removed from the catalogue.")
    )
    if job.cancel_requested_at:
        stop_job(job.pk, message=Message("Stopped: {message}", message=message), now=now, result=result)
        return
    if failed:
        more = ", …" if len(failed) > _NAMED_IN_MESSAGE else ""
        names = failed[:_NAMED_IN_MESSAGE]
        message = Message.joined([message, Message("It failed on {failed}{more}.", failed=names, more=more)])
    fix = Message("Each of them says why; fix that and pull again.") if failed else ""
    finish_job(job.pk, message=message, now=now, failed=bool(failed) or not pulls, fix=fix, result=result)


def _part(pull: ImagePull) -> dict[str, Any]:
    words = pull.message or pull.get_status_display()
    return {"name": pull.agent.name, "ok": pull.status == _Status.DONE, "message": words}
