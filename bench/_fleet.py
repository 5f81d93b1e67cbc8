"""The portal's side of bin/bench fleet, in a process whose settings name the database: it feeds the queue and counts.

Commands on standard input, one answer in JSON each: ``prepare``, ``feed RATE SECONDS``, ``end``.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from django.core.management import call_command
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from backendai.base.core.slots import Slots
from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.services import create_person, get_or_create_project
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord, history_entry
from backendai.domain.compute.status import LIVE, TERMINAL, Outcome, Phase, Result, Status

PREFIX = "sim"
USERS = 50
TICK = 0.5
_SLOTS = Slots.parse({"cpu": 1, "mem": "1g"}).to_json()
_MOST_PENDING = 3000


def main() -> None:
    """Answer commands until there are no more."""
    for line in sys.stdin:
        name, *words = line.split()
        numbers = [float(word) for word in words]
        answer = {"prepare": prepare, "agents": agents, "feed": feed, "end": end}[name](*numbers)
        print(json.dumps(answer), flush=True)


def prepare() -> dict[str, Any]:
    """Write people, an image and a group; returns a join token."""
    call_command("migrate", verbosity=0)
    project = get_or_create_project("default", "bench")
    for number in range(USERS):
        create_person(f"user-{number}@example.com", password=None, project=project)
    group, _ = ResourceGroup.objects.get_or_create(name="bench")
    Image.objects.get_or_create(name="simulated", defaults={"reference": "simulated/python"})
    return {"token": create_join_token(group, name_prefix=PREFIX, reusable=True)}


def agents() -> dict[str, Any]:
    """Return how many agents are alive."""
    return {"alive": Agent.objects.filter(status=Agent.Status.ALIVE).count()}


def feed(rate: float, seconds: float, run_seconds: float) -> dict[str, Any]:
    """Write ``rate`` sessions each second that run for ``run_seconds``; returns what happened in that time."""
    writer = _Writer(run_seconds)
    since, started_at, written, lives = timezone.now(), time.monotonic(), 0, []
    while (spent := time.monotonic() - started_at) < seconds:
        counts = dict(
            ComputeSession.objects.filter(status__in=LIVE).values_list("status").annotate(Count("pk")).order_by()
        )
        pending = counts.get(Status.PENDING, 0)
        lives.append((sum(counts.values()) - pending, pending))
        due = min(int(rate * (spent + TICK)) - written, _MOST_PENDING - pending)
        written += writer.write(max(due, 0))
        time.sleep(max(0.0, TICK - (time.monotonic() - started_at - spent)))
    until = timezone.now()
    window = (until - since).total_seconds()
    started = ComputeSession.objects.filter(started_at__range=(since, until)).count()
    ended = ComputeSession.objects.filter(ended_at__range=(since, until), status__in=TERMINAL).count()
    return {
        "seconds": window,
        "written": written,
        "started": started,
        "ended": ended,
        "live_least": min(live for live, _ in lives),
        "live_most": max(live for live, _ in lives),
        "live_mean": sum(live for live, _ in lives) / len(lives),
        "pending_most": max(pending for _, pending in lives),
    }


def end(seconds: float) -> dict[str, Any]:
    """Wait until every session has ended; returns what is left and how they ended."""
    deadline = time.monotonic() + seconds
    while ComputeSession.objects.filter(status__in=LIVE).exists() and time.monotonic() < deadline:
        time.sleep(1)
    results = dict(ComputeSession.objects.values_list("result").annotate(Count("pk")).order_by())
    return {
        "sessions": ComputeSession.objects.count(),
        "not_ended": ComputeSession.objects.filter(status__in=LIVE).count(),
        "succeeded": results.get(str(Result.SUCCESS), 0),
        "allocations_left": Allocation.objects.count(),
        "retried": ComputeSession.objects.filter(retries__gt=0).count(),
    }


class _Writer:
    """Writes sessions in bulk, as the launch service writes one; what it checks before is left out."""

    def __init__(self, run_seconds: float) -> None:
        self._group, self._image = ResourceGroup.objects.get(name="bench"), Image.objects.get(name="simulated")
        self._users, self._project = list(User.objects.exclude(is_superuser=True)), Project.objects.get(name="bench")
        self._run_seconds = run_seconds
        self._number = ComputeSession.objects.count()

    def write(self, number: int) -> int:
        """Write so many; returns how many."""
        if not number:
            return 0
        rows = [self._session() for _ in range(number)]
        with transaction.atomic():
            ComputeSession.objects.bulk_create(rows)
            Kernel.objects.bulk_create([Kernel(session=row, slots=row.slots) for row in rows])
            entry = {"phase": Phase.SCHEDULE, "result": Outcome.SUCCESS, "to_status": Status.PENDING}
            SchedulingRecord.objects.bulk_create([history_entry(session=row, **entry) for row in rows])
        hint("controller.schedule_group", self._group.pk, queue=CONTROL_QUEUE)
        return number

    def _session(self) -> ComputeSession:
        self._number += 1
        return ComputeSession(
            name=f"run-{self._number}",
            owner=self._users[self._number % len(self._users)],
            project=self._project,
            resource_group=self._group,
            image=self._image,
            access_key=f"AK{self._number % len(self._users)}",
            session_type="batch",
            slots=_SLOTS,
            startup_command=f"sleep {self._run_seconds * random.uniform(0.9, 1.1):.2f}",
        )


if __name__ == "__main__":
    main()
