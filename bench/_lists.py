"""The measurements of bin/bench lists, in a process whose settings name the database."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

import backendai.asgi  # noqa: F401  (the process as it serves: its collector passes over what stays)
from backendai.domain.accounts.models import User
from backendai.portal.web.admin.menu import MENU
from bench._house import House, fill
from bench._portal import say

_JSON = "application/json"


class Cost(NamedTuple):
    """What one page cost: milliseconds by the clock and of the processor, and its queries."""

    p50: float
    p95: float
    cpu_p50: float
    cpu_p95: float
    queries: int


def main() -> None:
    """Print the figures as one JSON object."""
    sessions, live, users, agents, rounds = map(int, sys.argv[1:6])
    call_command("migrate", verbosity=0)
    house = fill(sessions=sessions, live=live, users=users, agents=agents)
    gc.freeze()  # a serving process has not made the house
    costs = {}
    for name, ask in requests(house):
        costs[name] = cost_of(ask, rounds)
        say(f"{name}: {costs[name]}")
    lists = {name: cost for name, cost in costs.items() if name.startswith("sessions")}
    panel = {name: cost for name, cost in costs.items() if name.startswith("manage")}
    print(
        json.dumps(
            {
                "sessions": sessions,
                "session_list_ms_p95": max(cost.p95 for cost in lists.values()),
                "admin_list_ms_p95": {name: cost.p95 for name, cost in panel.items()},
                "check_presets_ms_p95": costs["check-presets"].p95,
                "queries": {name: cost.queries for name, cost in costs.items()},
                "ms_p50": {name: cost.p50 for name, cost in costs.items()},
                "ms_p95": {name: cost.p95 for name, cost in costs.items()},
                "cpu_ms_p50": {name: cost.cpu_p50 for name, cost in costs.items()},
                "cpu_ms_p95": {name: cost.cpu_p95 for name, cost in costs.items()},
            }
        )
    )


def requests(house: House) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each page under its name, as somebody asks for it."""
    user, admin = signed_in(house.user), signed_in(house.superadmin)
    home, rest = reverse("web:sessions"), "/api/v1/sessions/"
    for who, client in (("user", user), ("superadmin", admin)):
        yield f"sessions {who}", getter(client, home)
        yield f"sessions {who} finished", getter(client, home, view="finished")
        yield f"sessions {who} search", getter(client, home, view="finished", q="train-99")
        yield f"sessions {who} narrowed", getter(client, home, status="PENDING", group="group-1", type="batch")
        yield f"sessions {who} sorted", getter(client, home, view="finished", sort="name")
        yield f"sessions {who} rest", getter(client, rest)
        yield f"sessions {who} rest narrowed", getter(client, rest, status="TERMINATED", type="batch")
        yield f"dashboard {who}", getter(client, reverse("web:dashboard"))
        yield f"limits {who}", getter(client, "/api/v1/me/limits/")
    yield "sessions superadmin late page", getter(admin, home, view="finished", page="1500")
    yield (
        "check-presets",
        lambda: user.post("/api/v1/check-presets/", '{"resource_group": "group-0"}', content_type=_JSON),
    )
    for _, entries in MENU:
        for entry in entries:
            yield f"manage {entry.section}", getter(admin, reverse(f"manage:{entry.section}"))


def signed_in(user: User) -> Client:
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


def getter(client: Client, path: str, **query: str) -> Callable[[], Any]:
    return lambda: client.get(path, query)


def cost_of(ask: Callable[[], Any], rounds: int) -> Cost:
    """Return what the request costs, after two that warm everything up."""
    with CaptureQueriesContext(connection) as captured:
        answer = ask()
    queries = len(captured)  # the next request forgets them
    assert answer.status_code in (200, 204), (answer.status_code, answer.content[:300])  # 204: nothing has changed
    ask()
    walls, processor = [], []
    for _ in range(rounds):
        started_at, worked = time.perf_counter(), time.process_time()
        ask()
        walls.append((time.perf_counter() - started_at) * 1000)
        processor.append((time.process_time() - worked) * 1000)
    return Cost(
        round(statistics.median(walls), 1),
        round(percentile(walls), 1),
        round(statistics.median(processor), 1),
        round(percentile(processor), 1),
        queries,
    )


def percentile(numbers: list[float], part: float = 0.95) -> float:
    return sorted(numbers)[min(len(numbers) - 1, int(part * len(numbers)))]
