"""The server's side of bin/bench pages, in a process whose settings name the database.

The launcher is asked for in a house of ten groups that share the agents, the preview in one group with all of them:
first where most is free, then behind sessions that wait for whole agents.
"""

from __future__ import annotations

import gc
import json
import sys
from uuid import uuid4

from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.portal.loops.loops import run_pass
from bench._house import BATCH, analyse, fill
from bench._lists import cost_of, getter, signed_in
from bench._portal import say

_SESSIONS, _LIVE, _USERS = 3_000, 900, 100


def main() -> None:
    """Print the figures as one JSON object."""
    agents, pending, rounds = map(int, sys.argv[1:4])
    call_command("migrate", verbosity=0)
    house = fill(sessions=_SESSIONS, live=_LIVE, users=_USERS, agents=agents)
    group = ResourceGroup.objects.get(name="group-0")
    group.is_default = True
    group.save()
    client = signed_in(house.user)
    gc.freeze()  # a serving process has not made the house
    form = {
        "session_type": "interactive",
        "image": "image-0",
        "project": str(house.user.projects.get().pk),
        "resource_group": group.name,
        "preset": "",
        "cpu": "2",
        "mem": "4",
        "mem_unit": "g",
        "slot.cuda.device": "1",
    }
    asked = {
        "launcher": getter(client, reverse("web:launch")),
        "preview": lambda: client.post(reverse("web:launch_preview"), form),
        "amounts": lambda: client.post(reverse("web:launch_amounts"), form),
        "queued_preview": lambda: client.post(reverse("web:launch_preview"), form),
    }
    figures: dict[str, float] = {"agents": agents}
    for name, ask in asked.items():
        if name == "preview":
            Agent.objects.update(resource_group=group)  # it looks at one group: now that is all agents
            run_pass(timezone.now())
        if name == "queued_preview":
            _queue(group, pending)
        cost = cost_of(ask, rounds)
        say(f"{name}: {cost}")
        figures |= {f"{name}_ms_p50": cost.p50, f"{name}_ms_p95": cost.p95, f"{name}_cpu_ms_p50": cost.cpu_p50}
        figures[f"{name}_queries"] = cost.queries
    print(json.dumps(figures))


def _queue(group: ResourceGroup, number: int) -> None:
    """Let so many sessions wait for a whole agent each."""
    model, now = ComputeSession.objects.filter(resource_group=group)[0], timezone.now()
    names = ("owner_id", "project_id", "resource_group_id", "image_id", "access_key")
    values = {name: getattr(model, name) for name in names} | {"slots": {"cpu": "64", "mem": str(200 * 2**30)}}
    waiting = [ComputeSession(id=uuid4(), name=f"waits-{n}", created_at=now, **values) for n in range(number)]
    ComputeSession.objects.bulk_create(waiting, batch_size=BATCH)
    kernels = [Kernel(id=one.pk, session=one, status=one.status, slots=one.slots) for one in waiting]
    Kernel.objects.bulk_create(kernels, batch_size=BATCH)
    analyse()
    run_pass(now)
