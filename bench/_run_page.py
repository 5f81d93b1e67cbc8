"""The measurements of bin/bench run_page, in a process whose settings name the database."""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.services.creating import RunSpec, create_run
from backendai.portal.loops.pipelines import run_pipelines
from bench._house import House, fill
from bench._lists import cost_of, getter, signed_in
from bench._portal import say

_SEEN = re.compile(r'id="run-seen" name="seen" value="([^"]+)"')
_STEPS, _LAYER, _VALUES = 500, 10, 100
_STEP: Mapping[str, Any] = {"image": "image-0", "startup_command": "true", "resources": {"cpu": 1, "mem": "512m"}}
_DOCUMENTS: Mapping[str, Mapping[str, Any]] = {
    "steps_500": {
        "steps": {f"s{n}": {**_STEP, "after": [f"s{n - _LAYER}"] if n >= _LAYER else []} for n in range(_STEPS)}
    },
    "elements_10000": {**_STEP, "matrix": {name: list(range(_VALUES)) for name in ("lr", "seed")}},
}


def main() -> None:
    """Print the figures as one JSON object."""
    rounds = int(sys.argv[1])
    call_command("migrate", verbosity=0)
    house = fill(sessions=100, live=30, users=10, agents=10)
    ResourceGroup.objects.filter(name="group-0").update(is_default=True)
    client = signed_in(house.user)
    figures: dict[str, float] = {}
    runs = {name: _launched(house, document) for name, document in _DOCUMENTS.items()}
    gc.freeze()  # a serving process has not made them
    before = {name: _seen(client, run) for name, run in runs.items()}
    run_pipelines(timezone.now())
    for name, run in runs.items():
        figures |= {f"{name}_{key}": value for key, value in _figures(client, run, before[name], rounds).items()}
    print(json.dumps(figures))


def _launched(house: House, document: Mapping[str, Any]) -> Run:
    project = str(house.user.projects.get().pk)
    keys = {"project": project, "resource_group": "group-0"}
    whole = {**document, "defaults": keys} if "steps" in document else {**document, **keys}
    return create_run(house.user, RunSpec(document=whole), now=timezone.now())[0]


def _board(run: Run) -> str:
    return reverse("web:run_board", args=[run.pk])


def _seen(client: Client, run: Run) -> str:
    """Return what a page that shows this board now tells with its next look."""
    found = _SEEN.search(client.get(_board(run)).content.decode())
    if found is None:
        raise RuntimeError("the board has no mark")
    return found[1]


def _figures(client: Client, run: Run, before: str, rounds: int) -> dict[str, float]:
    asked = {
        "page": getter(client, reverse("web:run", args=[run.pk])),
        "whole_look": getter(client, _board(run)),
        "changed_look": getter(client, _board(run), seen=before),
        "same_look": getter(client, _board(run), seen=_seen(client, run)),
    }
    figures: dict[str, float] = {}
    for kind, ask in asked.items():
        cost = cost_of(ask, rounds)
        say(f"{kind} of {run.size} elements: {cost}")
        figures |= {f"{kind}_cpu_ms_p50": cost.cpu_p50, f"{kind}_kb": round(len(ask().content) / 1000, 1)}
        figures[f"{kind}_queries"] = cost.queries
    return figures
