"""What the page of a run shows and asks for every few seconds: its numbers, its graph, and the elements of a step."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.urls import reverse
from django.utils import timezone

from backendai.pipelines.explaining import Why, why_waits
from backendai.pipelines.models import Run, State, Step, Task
from backendai.pipelines.showing import own_values
from backendai.web.pipelines.graphs import graph_of
from backendai.web.pipelines.rows import RunRow, StepRow, attempts_of, grid_of, parts_of, step_rows

MOST_STEP_ROWS = 100


@dataclass(frozen=True, slots=True)
class Element:
    """The element that is looked at: why it waits, its own variables, and its newest attempts."""

    task: Task
    reasons: Sequence[Why]
    values: dict[str, str]
    attempts: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Board:
    """A run as its page shows it. ``mark`` changes with everything on it but the time."""

    run: Run
    rows: list[StepRow]
    chosen: StepRow
    element: Element | None
    query: QueryDict
    mark: str

    def context(self) -> dict[str, Any]:
        """Return what the template shows; one query."""
        run, chosen = self.run, self.chosen
        total = sum((row.counts for row in self.rows), Counter[State]())
        said = self.query.get("state", "")
        state = said if said in State.values else ""
        address = reverse("web:run", args=[run.pk])
        index = self.element.task.index if self.element else None
        return {
            "run": run,
            "row": RunRow(run, parts_of(total, run.size)),
            "steps": _page_of(self.rows, self._first_row()),
            "graph": graph_of(address, self.rows),
            "step": chosen.step,
            "grid": grid_of(address, chosen, number_in(self.query, "start") or 0, index, state),
            "parts": chosen.parts,
            "state": state,
            "element": self.element,
            "failed": total[State.FAILED],
            "may_retry": bool(total[State.FAILED] or (run.is_over and total[State.CANCELLED])),
            "is_live": run.ended_at is None,
            "mark": self.mark,
        }

    def _first_row(self) -> int:
        """Return where the page of the table begins: as it is asked for, else with the chosen step on it."""
        asked = number_in(self.query, "from")
        return self.rows.index(self.chosen) if asked is None else asked


@dataclass(frozen=True, slots=True)
class StepPage:
    """A page of the table of steps."""

    rows: list[StepRow]
    first: int
    last: int
    number: int
    earlier: int | None
    later: int | None


def board_of(run: Run, query: QueryDict) -> Board:
    """Return the run with the step and the element that the query chooses; three queries, and at most eleven more for
    the element."""
    rows = step_rows(run)
    chosen = next((row for row in rows if row.step.name == query.get("step")), rows[0])
    index = number_in(query, "index")
    element = _element(run, chosen, index) if index is not None or chosen.step.size == 1 else None
    return Board(run, rows, chosen, element, query, _mark_of(run, rows, element))


def number_in(query: QueryDict, name: str) -> int | None:
    """Return a number of an address; None for what is none."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _mark_of(run: Run, rows: list[StepRow], element: Element | None) -> str:
    """Return a digest of what can change. The run's version stands for the states of its elements: it grows in the
    transaction of each change."""
    said: list[object] = [run.version, run.status, run.ended_at, *(row.step.message for row in rows)]
    if element:
        said += [element.task.state, *(one.message for one in element.reasons)]
        for one in element.attempts:
            session = one["session"]
            said.append(session and (session.status, session.status_reason, session.started_at, session.ended_at))
    return hashlib.blake2b(repr(said).encode(), digest_size=12).hexdigest()


def _page_of(rows: list[StepRow], first: int) -> StepPage:
    number = len(rows)
    first = min(first, number - 1) // MOST_STEP_ROWS * MOST_STEP_ROWS
    last = min(first + MOST_STEP_ROWS, number)
    later = last if last < number else None
    return StepPage(rows[first:last], first + 1, last, number, first - MOST_STEP_ROWS if first else None, later)


def _element(run: Run, row: StepRow, index: int | None) -> Element | None:
    found = Task.objects.filter(step=row.step.id).select_related("session")
    task = (found if index is None else found.filter(index=index)).first()
    if task is None:
        return None
    task.step = Step.objects.defer("request", "secrets", "values").get(pk=row.step.id)
    return Element(task, why_waits(run, task, timezone.now()), own_values(task), attempts_of(task))
