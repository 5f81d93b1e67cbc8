"""The live part of a run's page, reloaded every few seconds: its numbers, its graph, and the elements of a step."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import QueryDict
from django.urls import reverse
from django.utils import timezone

from backendai.domain.forecasts.ends import run_ends
from backendai.domain.pipelines.explaining import Explanation, why_waits
from backendai.domain.pipelines.models import Run, State, Status, Step, Task
from backendai.domain.pipelines.presentation import (
    LAUNCHED,
    QUEUED,
    Counts,
    first_waits,
    own_values,
    state_of,
    step_counts,
)
from backendai.portal.web.pipelines.graphs import graph_of
from backendai.portal.web.pipelines.parts import Parts
from backendai.portal.web.pipelines.rows import TONES, RunRow, StepRow, attempts_of, grid_of, parts_of, step_rows

MOST_STEP_ROWS = 100
MOST_SEEN = 4_096
_ROWS = 5


@dataclass(frozen=True, slots=True)
class Element:
    """The selected element: why it waits, its variables, and its newest attempts."""

    task: Task
    reasons: Sequence[Explanation]
    values: dict[str, str]
    attempts: list[dict[str, Any]]

    @property
    def state(self) -> str:
        """The element's state, one of ``LAUNCHED`` once it is launched."""
        return state_of(self.task)


@dataclass(frozen=True, slots=True)
class Board:
    """The live part of a run's page, with the selected step.

    ``wait``: why the first queued element waits. ``mark`` is a digest that changes with every content except times.
    """

    run: Run
    step: Step
    element: Element | None
    query: QueryDict
    counts: dict[UUID, Counts]
    wait: str
    mark: str

    @property
    def is_seen(self) -> bool:
        """Return whether the requesting page already shows this state."""
        return self.query.get("seen", "").partition(".")[0] == self.mark

    def context(self, *, seen: str = "") -> dict[str, Any]:
        """Return the template context; three queries. ``seen``: the parts that the page has, which are left out."""
        run, rows = self.run, step_rows(self.run, self.counts)
        parts = Parts(seen[:MOST_SEEN].partition(".")[2])
        chosen = next(row for row in rows if row.step.id == self.step.pk)
        total = sum((row.counts for row in rows), Counter[str]())
        said = self.query.get("state", "")
        state = said if said in TONES else ""
        address = reverse("web:run", args=[run.pk])
        index = self.element.task.index if self.element else None
        first = number_in(self.query, "from")
        return {
            "run": run,
            "row": RunRow(run, parts_of(total, run.size), end=run_ends([run], timezone.now()).get(run.pk)),
            "steps": _page_of(rows, rows.index(chosen) if first is None else first, parts),
            "graph": graph_of(address, rows, parts),
            "step": chosen.step,
            "grid": grid_of(address, chosen, number_in(self.query, "start") or 0, index, state, parts),
            "parts": chosen.parts,
            "state": state,
            "element": self.element,
            "wait": self.wait,
            "failed": total[State.FAILED],
            "may_retry": bool(total[State.FAILED] or (run.is_over and total[State.CANCELLED])),
            "is_live": run.ended_at is None,
            "mark": f"{self.mark}.{parts.told}",
        }


@dataclass(frozen=True, slots=True)
class StepRows:
    """Some rows of the table of steps; ``is_kept``: the page already has them."""

    name: str
    rows: list[StepRow]
    is_kept: bool


@dataclass(frozen=True, slots=True)
class StepPage:
    """A page of the table of steps."""

    parts: list[StepRows]
    first: int
    last: int
    number: int
    earlier: int | None
    later: int | None


def board_of(run: Run, query: QueryDict) -> Board:
    """Return the live part with the step and element that the query selects, else the first step; of a run that failed
    the first step with failures.

    Three queries, one more after a failure and while an element is queued, and at most ten more for the element.
    """
    steps = Step.objects.filter(run=run).defer("request", "secrets", "values")
    name = query.get("step", "")[:32]
    step = (steps.filter(name=name).first() if name else None) or _first_failed(run, steps) or steps.earliest("place")
    index = number_in(query, "index")
    element = _element(run, step, index) if index is not None or step.size == 1 else None
    counts = step_counts(run)
    waits = first_waits([run]) if any(of_step[QUEUED] for of_step in counts.values()) else {}
    wait = waits.get(run.pk, "")
    return Board(run, step, element, query, counts, wait, _mark_of(run, element, counts, wait))


def _first_failed(run: Run, steps: QuerySet[Step]) -> Step | None:
    return steps.filter(tasks__state=State.FAILED).order_by("place").first() if run.status == Status.FAILED else None


def number_in(query: QueryDict, name: str) -> int | None:
    """Return a number of the query; None if it is missing or invalid."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _mark_of(run: Run, element: Element | None, counts: dict[UUID, Counts], wait: str) -> str:
    """Return a digest of everything that can change; one query.

    The run's version stands for the states of its elements, as each change increases it in the same transaction. That
    a queued element starts, or a running one is ending, does not change it.
    """
    messages = Step.objects.filter(run=run).exclude(message="").order_by("place").values_list("place", "message")
    launched = sorted((str(step), *map(of_step.__getitem__, LAUNCHED)) for step, of_step in counts.items())
    said: list[object] = [run.version, run.status, run.ended_at, launched, wait, *messages]
    if element:
        said += [element.task.state, *(one.message for one in element.reasons)]
        for one in element.attempts:
            session = one["session"]
            said.append(session and (session.status, session.status_reason, session.started_at, session.ended_at))
    return hashlib.blake2b(repr(said).encode(), digest_size=12).hexdigest()


def _page_of(rows: list[StepRow], first: int, parts: Parts) -> StepPage:
    number = len(rows)
    first = min(first, number - 1) // MOST_STEP_ROWS * MOST_STEP_ROWS
    last = min(first + MOST_STEP_ROWS, number)
    later = last if last < number else None
    found = []
    for at in range(first, last, _ROWS):
        some = rows[at : min(at + _ROWS, last)]
        said = repr([(row.step.name, row.step.message, sorted(row.counts.items())) for row in some])
        found.append(StepRows(f"run-steps-{at}", some, parts.is_kept(said)))
    return StepPage(found, first + 1, last, number, first - MOST_STEP_ROWS if first else None, later)


def _element(run: Run, step: Step, index: int | None) -> Element | None:
    found = Task.objects.filter(step=step).select_related("session")
    task = (found if index is None else found.filter(index=index)).first()
    if task is None:
        return None
    task.step = step
    return Element(task, why_waits(run, task, timezone.now()), own_values(task), attempts_of(task))
