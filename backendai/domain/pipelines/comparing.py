"""What differs between a run and an earlier one: parameters, requests of steps, templates, images and accelerators as
they were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backendai.base.core.secret_names import looks_secret
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.pipelines.documents.secrets import DIGEST
from backendai.domain.pipelines.models import Attempt, Edge, Run, Status, Step

MOST_DIFFERENCES = 200
_LONGEST = 300
_HIDDEN = "••••"
_KEPT_BACK = "\0"  # begins what is compared and not shown


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that the runs do not share, by its place in the document; empty: that run does not have it."""

    where: str
    before: str
    now: str


def last_good(run: Run) -> Run | None:
    """Return the newest earlier run of this name and owner that succeeded."""
    earlier = Run.objects.filter(owner=run.owner_id, name=run.name, kind=run.kind, status=Status.SUCCEEDED)
    found: Run | None = earlier.filter(created_at__lt=run.created_at).order_by("-created_at").first()
    return found


def differences(run: Run, before: Run) -> list[Difference]:
    """Return what differs, by place; 200 at most. Eight queries, and two more with accelerators."""
    old, new = _facts(before), _facts(run)
    places = sorted(old.keys() | new.keys())
    found = [
        Difference(place, _said(place, old), _said(place, new)) for place in places if old.get(place) != new.get(place)
    ]
    return found[:MOST_DIFFERENCES]


def _facts(run: Run) -> dict[str, str]:
    """Return all that may differ as texts by place; four queries, and one more with accelerators."""
    facts = {f"params.{name}": str(value) for name, value in run.parameters.items()}
    facts |= {"template": run.template, "on_failure": run.on_failure, "at_once": str(run.at_once or "")}
    facts |= dict(_leaves("workspace", run.workspace))
    steps = list(Step.objects.filter(run=run))
    waits: dict[UUID, list[str]] = defaultdict(list)
    for step_id, name, when in Edge.objects.filter(step__run=run).values_list("step", "on__name", "when"):
        waits[step_id].append(f"{name}: {when}")
    images, models = _images(run), _accelerators(run)
    for step in steps:
        where = f"steps.{step.name}"
        facts |= dict(_leaves(where, {key: value for key, value in step.request.items() if key != "version"}))
        facts |= {f"{where}.{place}": _KEPT_BACK + one[DIGEST] for place, one in step.secrets.items()}
        facts |= dict(_leaves(f"{where}.retry", step.retry))
        facts[f"{where}.elements"] = str(step.size)
        facts[f"{where}.values"] = str(step.values or "")
        facts[f"{where}.after"] = ", ".join(sorted(waits[step.pk]))
        if step.pk in images:
            facts[f"{where}.image digest"] = images[step.pk]
        if step.pk in models:
            facts[f"{where}.accelerators"] = models[step.pk]
    return {place: text for place, text in facts.items() if text}


def _images(run: Run) -> dict[UUID, str]:
    """Return by step the digests of the images that its sessions started from."""
    tries = Attempt.objects.filter(task__step__run=run).exclude(session__image_digest="").order_by()
    found: dict[UUID, set[str]] = defaultdict(set)
    for step_id, digest in tries.values_list("task__step", "session__image_digest").distinct():
        if digest:
            found[step_id].add(digest)
    return {step_id: ", ".join(sorted(digests)) for step_id, digests in found.items()}


def _accelerators(run: Run) -> dict[UUID, str]:
    """Return by step the models of the devices that its kernels had, as far as their agents report them."""
    kernels = Kernel.objects.filter(session__run_attempt__task__step__run=run).exclude(devices={}).order_by()
    had = list(kernels.values_list("session__run_attempt__task__step", "agent", "devices").distinct())
    agents = Agent.objects.filter(pk__in={agent for _step, agent, _devices in had}) if had else Agent.objects.none()
    reported = {pk: live.get("devices", {}) for pk, live in agents.values_list("pk", "live")}
    found: dict[UUID, set[str]] = defaultdict(set)
    for step_id, agent, devices in had:
        for device in (device for of_slot in devices.values() for device in of_slot):
            found[step_id].add((reported.get(agent, {}).get(device) or {}).get("model") or "")
    return {step_id: ", ".join(sorted(models - {""})) for step_id, models in found.items()}


def _leaves(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(f"{where}.{key}", one)
    elif value not in (None, "", [], False):
        yield where, str(value)


def _said(place: str, facts: Mapping[str, str]) -> str:
    text = facts.get(place, "")
    is_secret = text.startswith(_KEPT_BACK) or (".environ." in place and looks_secret(place.rpartition(".")[2], text))
    if text and is_secret:
        return _HIDDEN
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
