"""Giving elements their sessions: each exactly once, with what is its own in variables."""

from __future__ import annotations

import logging
import secrets
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from backendai.base.core.errors import BackendAIError, UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.base.db.bulk import among, update_rows
from backendai.base.paths.mount_targets import absolute_target
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.services.launching.create import SessionVariant, launch_alike, taken_names
from backendai.domain.compute.services.requests.check import Checked, check_spec
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_document import spec_of
from backendai.domain.pipelines.documents.secrets import opened_request
from backendai.domain.pipelines.models import Attempt, Edge, Run, State, Status, Step, Task
from backendai.domain.pipelines.moves import grow, move_tasks
from backendai.domain.pipelines.reading import rule_of
from backendai.scheduler.runs.snapshot import When

logger = logging.getLogger(__name__)
_LONGEST_NAME = 60
_MAKE_OUT = 'mkdir -p -- "$STEP_OUT" || exit 1\n'


def release(run: Run, version: int, task_ids: Sequence[UUID], now: datetime) -> int:
    """Launch the sessions of these elements while the run is as it was decided about; returns how many. What a launch
    refuses is said at its step, and tried again by the next pass."""
    tasks = Task.objects.filter(pk__in=among(task_ids), state=State.WAITING).order_by("step__place", "place")
    groups: dict[tuple[UUID, int], list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.step_id, task.growths].append(task)
    steps = Step.objects.in_bulk([step_id for step_id, _growths in groups])
    released = 0
    for (step_id, growths), some in groups.items():
        step, wanted = steps[step_id], some
        while wanted:
            try:
                done = _release_step(run, version, step, growths, wanted, now)
            except IntegrityError:  # a name was taken this moment: the next pass chooses another
                logger.info("run %s: a name of step %s was taken", run.pk, step.name)
                return released
            except BackendAIError as error:
                _say(step, error.message)
                is_full = error.code == "too-many-pending" or "pending" in error.code
                wanted = wanted[: len(wanted) // 2] if is_full else []
                continue
            if not done:
                return released
            version, released = version + 1, released + done
            if len(wanted) == len(some):
                _say(step, "")
            break
    return released


def _release_step(run: Run, version: int, step: Step, growths: int, tasks: Sequence[Task], now: datetime) -> int:
    """Write the sessions of one step in one transaction; 0 when the run has changed."""
    if not run.owner.is_active:
        raise _inactive(run)
    spec, checked = grown_request(run.owner, request_of(step), rule_of(step.retry).more, growths)
    if run.workspace:
        spec = _making_folders(spec)
        checked = check_spec(run.owner, spec)
    with transaction.atomic():
        if not grow(run.pk, version, Status.RUNNING):
            return 0
        variants = _variants(run, step, tasks, checked, spec)
        sessions = launch_alike(run.owner, spec, checked, variants, run_id=run.pk, now=now)
        ids = [task.pk for task in tasks]
        own = {"session_id": ("uuid", [one.pk for one in sessions])}
        update_rows(Task._meta.db_table, ids, own, counting=["attempt"], only_if=("state", State.WAITING))
        if move_tasks(ids, State.RELEASED, now=now, source=State.WAITING, retry_at=None) != len(ids):
            raise RuntimeError(f"run {run.pk} changed while its version stood still")
        Attempt.objects.bulk_create(
            Attempt(task=task, number=task.attempt + 1, session=one, created_at=now)
            for task, one in zip(tasks, sessions, strict=True)
        )
    return len(sessions)


def _inactive(run: Run) -> BackendAIError:
    return BackendAIError(Message("{email} is deactivated.", email=run.owner.email), code="owner-inactive")


def request_of(step: Step) -> SessionSpec:
    """Return the launch request of the step's elements. Raises UserError for a secret that cannot be opened."""
    return spec_of(opened_request(step.request, step.secrets))


def _making_folders(spec: SessionSpec) -> SessionSpec:
    """Return the request whose programs find their folder for output, those of roles too."""

    def led(command: str) -> str:
        return _MAKE_OUT + command if command.strip() else command

    roles = {name: replace(role, startup_command=led(role.startup_command)) for name, role in spec.roles.items()}
    return replace(spec, startup_command=led(spec.startup_command), roles=roles)


def _variants(run: Run, step: Step, tasks: Sequence[Task], checked: Checked, spec: SessionSpec) -> list[SessionVariant]:
    base = run.name if run.kind == Run.Kind.ARRAY else f"{run.name}-{step.name}"
    names = {task.pk: _name(base, step, task) for task in tasks}
    taken = taken_names(run.owner, list(names.values()))
    inputs = _inputs(run, step, tasks) if run.workspace else {}
    environ = {**checked.spec.environ, **spec.environ}
    variants = []
    for task in tasks:
        name = names[task.pk]
        if name in taken:
            name = f"{name[: _LONGEST_NAME - 1]}-{secrets.token_hex(2)}"[:64]
        own = {
            "BACKENDAI_RUN_ID": str(run.pk),
            "BACKENDAI_STEP": step.name,
            "BACKENDAI_ARRAY_INDEX": str(task.index),
            "BACKENDAI_ARRAY_COUNT": str(step.size),
            "BACKENDAI_ARRAY_ATTEMPT": str(task.attempt + 1),
            **(step.values[task.place] if step.values else {}),
            **inputs.get(task.pk, {}),
        }
        number = task.attempt + 1
        key = uuid.uuid5(task.pk, str(number))  # the same element and try is the same session
        variants.append(SessionVariant(key, name, {**environ, **own}))
    return variants


def _name(base: str, step: Step, task: Task) -> str:
    end = f"-{task.index}" if step.size > 1 else ""
    again = f"-r{task.attempt + 1}" if task.attempt else ""
    return f"{base[: _LONGEST_NAME - len(end) - len(again)]}{end}{again}"


def _inputs(run: Run, step: Step, tasks: Sequence[Task]) -> dict[UUID, dict[str, str]]:
    """Return where each element writes, and where what it waits for has written; two queries."""
    folder = run.workspace
    root = absolute_target(folder["folder"], "")
    root = "/".join([root, *filter(None, [folder.get("path", "").strip("/")]), f"run-{run.pk.hex[:12]}"])
    rows_of_edges = Edge.objects.filter(step=step).select_related("on").only("when", "on__name", "on__size")
    edges = list(rows_of_edges.order_by("pk"))
    done: dict[UUID, list[tuple[int, int]]] = defaultdict(list)
    rows = Task.objects.filter(step__in=[edge.on_id for edge in edges], state=State.SUCCEEDED).order_by("place")
    for step_id, index, attempt in rows.values_list("step_id", "index", "attempt"):
        done[step_id].append((index, attempt))
    found = {}
    for task in tasks:
        own = {"STEP_OUT": f"{root}/{step.name}/{task.index}/{task.attempt + 1}"}
        for edge in edges:
            name = edge.on.name.upper().replace("-", "_")
            there = done[edge.on_id]
            if edge.when == When.EACH:
                there = [one for one in there if one[0] == task.index]
            if edge.when == When.EACH or edge.on.size == 1:
                own |= {f"IN_{name}": f"{root}/{edge.on.name}/{index}/{number}" for index, number in there}
            else:
                own[f"IN_{name}"] = f"{root}/{edge.on.name}"
                own[f"IN_{name}_DONE"] = " ".join(f"{index}/{number}" for index, number in there)
        found[task.pk] = own
    return found


def _say(step: Step, message: str) -> None:
    if step.message != message:
        Step.objects.filter(pk=step.pk).update(message=message)
        step.message = message


def grown_request(
    owner: User, spec: SessionSpec, more: Mapping[str, float], growths: int
) -> tuple[SessionSpec, Checked]:
    """Return the request with its amounts grown so many times, and its check. An amount grows to that of the largest
    agent of the group at most, and no further than limits and images allow. Raises a UserError for what would be
    refused without growing."""
    checked = check_spec(owner, spec)
    if not more or not growths:
        return spec, checked
    largest = _largest_in(checked.group)
    for number in range(growths, 0, -1):
        grown = replace(spec, resources=_grown(spec.resources, more, number, largest))
        try:
            return grown, check_spec(owner, grown)
        except UserError as error:
            if not (error.field or "").startswith("resources"):
                raise
    return spec, checked


def _grown(
    asked: Mapping[str, object], more: Mapping[str, float], number: int, largest: Mapping[str, int]
) -> dict[str, object]:
    amounts = Slots.parse(asked)
    grown = {}
    for slot, factor in more.items():
        amount = amounts[slot]
        wanted = int(min(amount * factor**number, float(2**62)))
        grown[slot] = max(amount, min(wanted, largest.get(slot, wanted)))
    return {**asked, **Slots(grown).to_json()}


def _largest_in(group: ResourceGroup) -> dict[str, int]:
    """Return by slot the largest capacity of an agent of the group; empty without agents. One query."""
    largest: dict[str, int] = {}
    rows = Agent.objects.registered().filter(resource_group=group).exclude(capacity={})
    for capacity in rows.order_by().values_list("capacity", flat=True):
        for slot, amount in Slots.parse(capacity).items():
            largest[slot] = max(amount, largest.get(slot, 0))
    return largest
