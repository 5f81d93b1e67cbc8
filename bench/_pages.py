"""The server's side of bin/bench pages, in a process whose settings name the database.

The launcher is asked for in a house of ten groups that share the agents, the preview in one group with all of them.
"""

from __future__ import annotations

import gc
import json
import sys

from django.core.management import call_command
from django.urls import reverse

from backendai.domain.cluster.models import Agent, ResourceGroup
from bench._house import fill
from bench._lists import cost_of, getter, signed_in
from bench._portal import say

_SESSIONS, _LIVE, _USERS = 3_000, 900, 100


def main() -> None:
    """Print the figures as one JSON object."""
    agents, rounds = map(int, sys.argv[1:3])
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
    }
    figures: dict[str, float] = {"agents": agents}
    for name, ask in asked.items():
        if name == "preview":
            Agent.objects.update(resource_group=group)  # it looks at one group: now that is all agents
        cost = cost_of(ask, rounds)
        say(f"{name}: {cost}")
        figures |= {f"{name}_ms_p50": cost.p50, f"{name}_ms_p95": cost.p95, f"{name}_cpu_ms_p50": cost.cpu_p50}
        figures[f"{name}_queries"] = cost.queries
    print(json.dumps(figures))
