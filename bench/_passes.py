"""The measurements of bin/bench passes, in a process whose settings name the database."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.services import create_person, get_or_create_project
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.status import Status
from backendai.domain.planning.apply import apply_plan
from backendai.domain.planning.snapshot import read_snapshot
from backendai.portal.loops import loops
from backendai.portal.loops.loops import collector_paused
from backendai.scheduler.decide import decide
from bench._house import analyse

SHAPES, USERS, ROUNDS, BATCH = 64, 100, 3, 1_000
SMALL = Slots.parse({"cpu": 0.5, "mem": "64m"})  # what is left of an agent when the cluster is full
_TABLES = (Allocation, SchedulingRecord, Kernel, ComputeSession)


@dataclass(frozen=True)
class Cluster:
    """What is measured on."""

    group: ResourceGroup
    image: Image
    project: Project
    users: list[User]
    agents: list[Agent]


def main() -> None:
    """Print the figures as one JSON object."""
    sessions, agents, sequence = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    call_command("migrate", verbosity=0)
    cluster = make_cluster(agents, sequence)
    figures: dict[str, object] = {"sequence": sequence, "sessions": sessions, "agents": agents}
    figures |= placing(cluster, sessions)
    figures |= idling()
    figures |= saturated(cluster, sessions)
    print(json.dumps(figures))


def placing(cluster: Cluster, sessions: int) -> dict[str, object]:
    """Return how fast placeable sessions are placed, the parts of it in milliseconds, and its statements."""
    rounds = []
    for number in range(ROUNDS + 2):
        fill(cluster, sessions)
        if number == 0:
            with CaptureQueriesContext(connection) as captured:
                one_pass(cluster)
            statements = len(captured)
        else:
            times, placed = one_pass(cluster)
            rounds.append((times, placed))
    rounds = rounds[1:]  # the first is warmer than none, colder than the rest
    parts = [statistics.median(times[part] for times, _ in rounds) * 1000 for part in range(3)]
    seconds = statistics.median(sum(times) for times, _ in rounds)
    placed = min(count for _, count in rounds)
    return {
        "placements_per_s": round(placed / seconds),
        "placed": placed,
        "read_ms": round(parts[0], 1),
        "decide_ms": round(parts[1], 1),
        "write_ms": round(parts[2], 1),
        "statements": statements,
    }


def idling() -> dict[str, object]:
    """Return what a pass over all groups costs when nothing is pending."""
    clear()
    times = [milliseconds(lambda: loops.run_pass(timezone.now())) for _ in range(50)]
    return {"idle_pass_ms": round(statistics.median(times), 2)}


def saturated(cluster: Cluster, sessions: int) -> dict[str, object]:
    """Return what a pass costs when nothing fits: the first time, when nothing has changed, and when one started."""
    fill(cluster, sessions, full=True)
    first = milliseconds(lambda: one_pass(cluster))
    analyse()
    times = [milliseconds(lambda: one_pass(cluster)) for _ in range(ROUNDS * 2)]
    head = ComputeSession.objects.pending().order_by("-priority", "created_at").values_list("pk", flat=True)[0]
    ComputeSession.objects.filter(pk=head).update(status=Status.CANCELLED)
    shifted = milliseconds(lambda: one_pass(cluster))
    with CaptureQueriesContext(connection) as captured:
        one_pass(cluster)
    return {
        "saturated_first_pass_ms": round(first, 1),
        "saturated_pass_ms": round(statistics.median(times), 1),
        "saturated_shift_pass_ms": round(shifted, 1),
        "saturated_statements": len(captured),
    }


def one_pass(cluster: Cluster) -> tuple[tuple[float, float, float], int]:
    """Run one pass; returns the seconds of its reading, deciding and writing, and how many it placed."""
    group, now = ResourceGroup.objects.get(pk=cluster.group.pk), timezone.now()
    gc.collect()
    with collector_paused():
        marks = [time.perf_counter()]
        snapshot = read_snapshot(group, now)
        marks.append(time.perf_counter())
        plan = decide(snapshot)
        marks.append(time.perf_counter())
        placed = apply_plan(group, plan, now=now)
        marks.append(time.perf_counter())
    read, decided, written = (after - before for before, after in pairwise(marks))
    return (read, decided, written), len(placed)


def make_cluster(agents: int, sequence: str) -> Cluster:
    """Write people, an image, a group and its agents; every second agent has eight accelerators."""
    project = get_or_create_project("default", "bench")
    users = [create_person(f"user-{number}@example.com", password=None, project=project) for number in range(USERS)]
    group = ResourceGroup.objects.create(name="bench", sequence=sequence)
    image = Image.objects.create(name="bench", reference="bench", architecture="x86_64")
    rows = [_agent(group, number) for number in range(agents)]
    return Cluster(group, image, project, users, Agent.objects.bulk_create(rows, batch_size=BATCH))


def fill(cluster: Cluster, sessions: int, *, full: bool = False) -> None:
    """Write the pending sessions anew; ``full``: and kernels that leave next to nothing of the agents."""
    clear()
    started_at = timezone.now() - timedelta(days=1)
    rows = [_session(cluster, number, started_at) for number in range(sessions)]
    kernels = [Kernel(session=row, slots=row.slots) for row in rows]
    if full:
        filler = _session(cluster, sessions, started_at)
        filler.status = Status.RUNNING
        rows.append(filler)
        kernels += [_filling(filler, agent, rank) for rank, agent in enumerate(cluster.agents)]
    with transaction.atomic():
        ComputeSession.objects.bulk_create(rows, batch_size=BATCH)
        Kernel.objects.bulk_create(kernels, batch_size=BATCH)
        held = [kernel for kernel in kernels if kernel.agent_id]
        Allocation.objects.bulk_create(
            [
                Allocation(kernel=kernel, agent_id=kernel.agent_id, slot=slot, amount=amount)
                for kernel in held
                for slot, amount in kernel.amounts.items()
            ],
            batch_size=BATCH,
        )
    analyse()


def clear() -> None:
    """Remove all sessions."""
    with connection.cursor() as cursor:
        for model in _TABLES:
            table = connection.ops.quote_name(model._meta.db_table)
            postgres = connection.vendor == "postgresql"
            cursor.execute(f"TRUNCATE {table} CASCADE" if postgres else f"DELETE FROM {table}")


def milliseconds(work: Callable[[], object]) -> float:
    """Return how long it takes."""
    started_at = time.perf_counter()
    work()
    return (time.perf_counter() - started_at) * 1000


def _agent(group: ResourceGroup, number: int) -> Agent:
    devices = {"cuda.device": [f"GPU-{number}-{index}" for index in range(8)]} if number % 2 else {}
    capacity = {"cpu": 128, "mem": "1t", "disk": 1_000} | ({"cuda.device": 8} if devices else {})
    return Agent(
        name=f"agent-{number:04}",
        resource_group=group,
        status=Agent.Status.ALIVE,
        backend="docker",
        architecture="x86_64",
        capacity=Slots.parse(capacity).to_json(),
        devices=devices,
        token_digest=f"digest-{number}",
        last_seen_at=timezone.now(),
    )


def _session(cluster: Cluster, number: int, started_at: datetime) -> ComputeSession:
    shape = number % SHAPES
    amounts: dict[str, object] = {"cpu": 1 + shape % 8, "mem": f"{1 + shape}g", "disk": 1}
    if shape % 4 == 0:
        amounts["cuda.device"] = 1
    owner = cluster.users[number % USERS]
    return ComputeSession(
        name=f"session-{number}",
        owner=owner,
        project=cluster.project,
        resource_group=cluster.group,
        image=cluster.image,
        access_key=f"AK{number % USERS}",
        slots=Slots.parse(amounts).to_json(),
        created_at=started_at + timedelta(seconds=number),
    )


def _filling(session: ComputeSession, agent: Agent, rank: int) -> Kernel:
    left = agent.slots - SMALL
    return Kernel(session=session, rank=rank, agent=agent, status=Status.RUNNING, slots=left.to_json())
