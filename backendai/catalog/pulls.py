"""Putting an image on agents before anybody waits for it: one background job, one row for each agent.

Agents hear of it with their sync, fetch the image with their own engine and say how far they are. A row is over when
its agent says so, when somebody cancels the job, when the agent is lost, or when the job's time is up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum

from backendai.accounts.models import User
from backendai.activity.jobs import finish_job, refuse_second, report_progress, start_job, stop_job
from backendai.activity.models import BackgroundJob
from backendai.activity.services import audit
from backendai.catalog.models import Image, ImagePull
from backendai.catalog.registry_access import access_for
from backendai.cluster.models import Agent, ResourceGroup
from backendai.core.durations import describe_duration
from backendai.core.errors import NotFound, UserError
from backendai.wire.broker import hint_on_commit
from backendai.wire.pulls import PullReport, PullSpec, PullState
from backendai.wire.queues import node_queue

PULL_JOB = "image.pull"
MOST_AGENTS = 1000
WITHOUT_IMAGES = frozenset({"process"})  # backends whose kernels start from what the machine has
_LONGEST = timedelta(hours=2)
_SILENT_AFTER_CANCEL = timedelta(seconds=30)
_SPEAK_EVERY = timedelta(seconds=1)
_Status = ImagePull.Status
_NOT_OVER = (_Status.WAITING, _Status.PULLING)
_NAMED_IN_MESSAGE = 3


def start_pull(
    user: User, image: Image, *, agents: Collection[Agent], groups: Collection[ResourceGroup], now: datetime
) -> BackgroundJob:
    """Return the job that puts the image on these agents, and on those of the groups that answer and can run it.

    Raises a UserError when an agent that is named cannot take it or none is left, Conflict while one goes on.
    """
    if image.is_built_here:
        text = f"{image.name} is built on the machines themselves (manage.py build_images); no registry has it."
        raise UserError(text, field="image", code="image-built-here")
    if image.is_on_nodes_only:
        text = f"{image.name} was made of a session and lies on its node alone; no registry has it."
        raise UserError(text, field="image", code="image-on-node")
    chosen = _chosen(image, agents, groups)
    with transaction.atomic():
        refuse_second(PULL_JOB, image.name)
        job = start_job(
            PULL_JOB,
            image.name,
            "The agents are being told.",
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
            hint_on_commit("node.pull_image", str(pull.pk), queue=node_queue(pull.agent.name))
    return job


def pulls_of(image: Image) -> tuple[BackgroundJob | None, list[ImagePull]]:
    """Return the newest job that puts this image on agents, with its row for each agent."""
    newest = ImagePull.objects.filter(image=image).order_by("-job__created_at").select_related("job").first()
    if newest is None:
        return None, []
    return newest.job, list(ImagePull.objects.filter(job=newest.job).select_related("agent").order_by("agent__name"))


def pulls_wanted() -> QuerySet[ImagePull]:
    """Return the pulls that agents should do now."""
    running = Q(job__status=BackgroundJob.Status.RUNNING, job__cancel_requested_at=None)
    return ImagePull.objects.filter(running, status__in=_NOT_OVER)


def pull_spec(agent: Agent, pull_id: UUID) -> PullSpec:
    """Return what this agent should fetch, with the account for it. Raises NotFound when it should not (any more)."""
    pull = pulls_wanted().filter(pk=pull_id, agent=agent).select_related("image", "agent__resource_group").first()
    if pull is None:
        raise NotFound("This pull is not wanted on this agent.")
    return PullSpec(
        pull_id=pull.pk,
        image=pull.image.reference,
        digest=pull.image.digest,
        timeout=pull.agent.resource_group.pull_timeout.total_seconds(),
        access=access_for(pull.image),
    )


def pulls_reported(words: Sequence[tuple[Agent, PullReport]], *, now: datetime) -> list[bool]:
    """Write what agents say about their pulls; returns for each whether it is still wanted. What is the same of several
    is one statement.

    It needs no transaction around it: of two that are the last ones, the later sees both rows and closes the job.
    """
    if not words:
        return []
    rows = {row.pk: row for row in _live().filter(pk__in={report.pull_id for _, report in words})}
    same = defaultdict[tuple[str, str, float | None], list[UUID]](list)
    verdicts, loud, touched = [], set[UUID](), dict[UUID, BackgroundJob]()
    for agent, report in words:
        row = rows.get(report.pull_id)
        if row is None or row.agent_id != agent.pk or not row.job.is_running:
            verdicts.append(False)
            continue
        state = _state_after(report, row.job)
        same[state, report.message, 1.0 if state == _Status.DONE else report.progress].append(row.pk)
        touched[row.job_id] = row.job
        if state != row.status:
            loud.add(row.job_id)
        verdicts.append(state != _Status.CANCELLED)
    for (state, message, progress), ids in same.items():
        rows_now = ImagePull.objects.filter(pk__in=ids, status__in=_NOT_OVER)
        rows_now.update(status=state, message=message, progress=progress, heard_at=now)
    for job in touched.values():
        if job.pk in loud or now - job.updated_at >= _SPEAK_EVERY:
            _follow(job, now)
    return verdicts


def follow_pulls(now: datetime) -> int:
    """End pulls that nobody will speak of any more: their agent is lost, their job cancelled, or its time is up. Close
    the jobs of which nothing is left. Returns how many pulls were ended."""
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
            raise UserError(f"Agent {agent.name} {problem}.", field="agents", code="agent-cannot-pull")
    of_groups = Agent.objects.answering().filter(resource_group__in=groups).select_related("resource_group")
    fitting = [agent for agent in of_groups if not _obstacle(image, agent)]
    chosen = {agent.pk: agent for agent in (*agents, *fitting)}
    if not chosen:
        raise UserError(
            "None of the agents that you chose answers and has a container engine for this image.",
            field="agents",
            code="no-agent",
        )
    if len(chosen) > MOST_AGENTS:
        text = f"{len(chosen)} agents at once: choose at most {MOST_AGENTS}."
        raise UserError(text, field="agents", code="too-many", limit=MOST_AGENTS)
    return sorted(chosen.values(), key=lambda agent: agent.name)


def _obstacle(image: Image, agent: Agent) -> str:
    """Return why this agent cannot fetch the image; empty when it can."""
    if agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
        return "does not answer"
    if agent.backend in WITHOUT_IMAGES:
        return "has no container engine"
    if agent.low_disk:
        return "is short of disk space"
    if image.architecture and agent.architecture and image.architecture != agent.architecture:
        return f"is {agent.architecture}, and the image is for {image.architecture}"
    return ""


def _live() -> QuerySet[ImagePull]:
    return ImagePull.objects.filter(status__in=_NOT_OVER).select_related("job").order_by()


def _state_after(report: PullReport, job: BackgroundJob) -> str:
    if report.state == PullState.PULLING:
        return _Status.CANCELLED if job.cancel_requested_at else _Status.PULLING
    return _Status.DONE if report.state == PullState.DONE else _Status.FAILED


def _end_of(pull: ImagePull, now: datetime) -> tuple[str, str]:
    """Return the status in which a pull ends without a word of its agent, and why; empty while it may go on."""
    job, agent = pull.job, pull.agent
    if not job.is_running:
        return _Status.CANCELLED, "The job is over."
    if job.cancel_requested_at:
        is_silent = pull.heard_at is None or pull.heard_at <= now - _SILENT_AFTER_CANCEL
        return (_Status.CANCELLED, "") if pull.status == _Status.WAITING or is_silent else ("", "")
    if agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
        return _Status.FAILED, "The agent was lost on the way."
    if job.deadline_at and job.deadline_at <= now:
        took = describe_duration(job.deadline_at - job.created_at)
        begun = "not done" if pull.status == _Status.PULLING else "not even begun"
        return _Status.FAILED, f"It was {begun} after {took}."
    return "", ""


def _follow(job: BackgroundJob, now: datetime) -> None:
    """Write how far the job is as a whole, or close it when every row is over."""
    rows = ImagePull.objects.filter(job=job)
    is_over = ~Q(status__in=_NOT_OVER)
    facts = rows.aggregate(number=Count("pk"), over=Count("pk", filter=is_over), known=Sum("progress", filter=~is_over))
    share = (facts["over"] + (facts["known"] or 0.0)) / (facts["number"] or 1)
    message = f"{facts['over']} of {facts['number']} agents are through."
    report_progress(job.pk, share, message, now=now, done=facts["over"], total=facts["number"])
    if facts["over"] == facts["number"]:
        _close(job, list(rows.select_related("agent").order_by("agent__name")), now)


def _close(job: BackgroundJob, pulls: Sequence[ImagePull], now: datetime) -> None:
    there = [pull.agent.name for pull in pulls if pull.status == _Status.DONE]
    failed = [pull.agent.name for pull in pulls if pull.status == _Status.FAILED]
    result: dict[str, Any] = {"parts": [_part(pull) for pull in pulls]}
    message = f"{len(there)} of {len(pulls)} agents have it." if pulls else "The image left the catalogue meanwhile."
    if job.cancel_requested_at:
        stop_job(job.pk, message=f"Stopped: {message}", now=now, result=result)
        return
    if failed:
        more = ", …" if len(failed) > _NAMED_IN_MESSAGE else ""
        message += f" It failed on {', '.join(failed[:_NAMED_IN_MESSAGE])}{more}."
    fix = "Each of them says why; mend that and pull again." if failed else ""
    finish_job(job.pk, message=message, now=now, failed=bool(failed) or not pulls, fix=fix, result=result)


def _part(pull: ImagePull) -> dict[str, Any]:
    words = pull.message or pull.get_status_display()
    return {"name": pull.agent.name, "ok": pull.status == _Status.DONE, "message": words}
