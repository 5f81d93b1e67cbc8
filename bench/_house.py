"""A full house for bin/bench lists: people, machines, and years of sessions, written row by row."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from backendai.base.core.slots import MILLI, Slots
from backendai.domain.accounts.models import Domain, KeyPair, Membership, Project, ResourcePolicy, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.status import Result, Status

BATCH, DOMAINS, PROJECTS, GROUPS = 2_000, 4, 40, 10
_SHAPES = [{"cpu": cpu, "mem": str(gib * 2**30)} for cpu in ("1", "2", "4") for gib in (1, 2, 8)]
_CAPACITY = Slots.parse({"cpu": 64, "mem": "256g", "cuda.device": 4}).to_json()


@dataclass(frozen=True)
class House:
    """Who looks at it: somebody with sessions of their own, and anyone who sees everything."""

    user: User
    superadmin: User


def fill(*, sessions: int, live: int, users: int, agents: int) -> House:
    """Write everything; the newest ``live`` sessions have not ended, and a third of them waits."""
    dice = random.Random(1)
    with transaction.atomic():
        projects, people, keys = _people(users)
        groups = [ResourceGroup.objects.create(name=f"group-{number}") for number in range(GROUPS)]
        machines = Agent.objects.bulk_create([_agent(groups[n % GROUPS], n) for n in range(agents)], batch_size=BATCH)
        images = [Image.objects.create(name=f"image-{n}", reference=f"local/image-{n}") for n in range(20)]
        for number in range(20):
            ResourcePreset.objects.create(name=f"preset-{number}", slots={"cpu": 1 + number, "mem": "4g"})
        now = timezone.now()
        for begin in range(0, sessions, BATCH):
            ages = range(sessions - begin, max(0, sessions - begin - BATCH), -1)
            rows = [_session(dice, age, live, now, people, keys, projects, groups, images) for age in ages]
            _write(rows, machines)
        _write_trail(people, sessions, now)
    analyse()
    dana = User.objects.create_superuser("dana@example.com")
    return House(people[0], dana)


def analyse() -> None:
    """Do what the database does by itself within a minute."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def _people(number: int) -> tuple[list[Project], list[User], list[KeyPair]]:
    policy = ResourcePolicy.objects.create(name="usual", slots={"cpu": 100_000}, max_sessions=100_000)
    domains = [Domain.objects.create(name=f"domain-{n}", policy=policy) for n in range(DOMAINS)]
    projects = [
        Project.objects.create(name=f"project-{n}", domain=domains[n % DOMAINS], policy=policy) for n in range(PROJECTS)
    ]
    people = [
        User(email=f"user-{n}@example.com", domain=projects[n % PROJECTS].domain, password="!", policy=policy)
        for n in range(number)
    ]
    people = User.objects.bulk_create(people, batch_size=BATCH)
    keys = KeyPair.objects.bulk_create([KeyPair(user=user) for user in people], batch_size=BATCH)
    rows = [Membership(user=user, project=projects[n % PROJECTS]) for n, user in enumerate(people)]
    Membership.objects.bulk_create(rows, batch_size=BATCH)
    return projects, people, keys


def _agent(group: ResourceGroup, number: int) -> Agent:
    return Agent(
        name=f"agent-{number}",
        resource_group=group,
        status=Agent.Status.ALIVE,
        backend="simulated",
        architecture="x86_64",
        capacity=_CAPACITY,
        token_digest=f"{number:064x}",
        last_seen_at=timezone.now(),
    )


def _session(
    dice: random.Random,
    age: int,
    live: int,
    now: datetime,
    people: list[User],
    keys: list[KeyPair],
    projects: list[Project],
    groups: list[ResourceGroup],
    images: list[Image],
) -> ComputeSession:
    # A tenth belongs to the one who looks: a heavy user's list is the one that could be slow.
    who = 0 if dice.random() < 0.1 else dice.randrange(len(people))
    created_at = now - timedelta(minutes=age)
    status = Status.TERMINATED if age > live else Status.PENDING if age % 3 == 0 else Status.RUNNING
    batch = dice.random() < 0.5
    return ComputeSession(
        id=uuid.UUID(int=dice.getrandbits(128), version=4),
        name=f"train-{age}",
        owner=people[who],
        project=projects[who % len(projects)],
        resource_group=groups[age % len(groups)],
        image=dice.choice(images),
        access_key=keys[who].access_key,
        session_type="batch" if batch else "interactive",
        status=status,
        result=Result.SUCCESS if batch and status == Status.TERMINATED else Result.UNDEFINED,
        slots=dice.choice(_SHAPES),
        status_reason="" if status == Status.RUNNING else "no-room" if status == Status.PENDING else "user-requested",
        created_at=created_at,
        changed_at=created_at,
        started_at=None if status == Status.PENDING else created_at,
        ended_at=created_at + timedelta(hours=1) if status == Status.TERMINATED else None,
    )


def _write(sessions: list[ComputeSession], machines: list[Agent]) -> None:
    ComputeSession.objects.bulk_create(sessions)
    kernels = [
        Kernel(
            id=session.pk,
            session=session,
            status=session.status,
            slots=session.slots,
            agent=None if session.status == Status.PENDING else machines[session.pk.int % len(machines)],
        )
        for session in sessions
    ]
    Kernel.objects.bulk_create(kernels)
    Allocation.objects.bulk_create(
        Allocation(kernel_id=kernel.pk, agent_id=kernel.agent_id, slot=slot, amount=int(amount) * MILLI)
        for kernel in kernels
        if kernel.status == Status.RUNNING
        for slot, amount in kernel.slots.items()
    )


def _write_trail(people: list[User], number: int, now: datetime) -> None:
    for begin in range(0, number, BATCH):
        AuditEntry.objects.bulk_create(
            AuditEntry(
                at=now - timedelta(minutes=number - n),
                actor=people[n % len(people)],
                action="session.create",
                target_type="session",
                target_id=str(uuid.UUID(int=n)),
                details={"name": f"train-{n}"},
            )
            for n in range(begin, min(number, begin + BATCH))
        )
