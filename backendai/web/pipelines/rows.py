"""Runs as rows of lists, and what a run's page shows of its steps and elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from backendai.accounts.models import User
from backendai.pipelines.models import Attempt, Run, State, Step, Task
from backendai.pipelines.showing import counts_of, step_counts, steps_of
from backendai.texts.translation import gettext as _
from backendai.web.statuses import appearance_of

MOST_CELLS = 1_000
MOST_ROWS = 20
_ORDER = (State.SUCCEEDED, State.FAILED, State.RELEASED, State.WAITING, State.SKIPPED, State.CANCELLED)
TONES = {
    State.SUCCEEDED: "good",
    State.FAILED: "bad",
    State.RELEASED: "busy",
    State.WAITING: "wait",
    State.SKIPPED: "over",
    State.CANCELLED: "over",
}


@dataclass(frozen=True, slots=True)
class Part:
    """How many elements are in a state; ``percent``: of all, ``start``: of those before."""

    state: str
    word: str
    tone: str
    number: int
    percent: float
    start: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run with its numbers."""

    run: Run
    parts: list[Part]

    @property
    def over(self) -> int:
        """How many elements are over."""
        return sum(part.number for part in self.parts if part.state not in (State.WAITING, State.RELEASED))


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step with its numbers and what it waits for."""

    step: Step
    parts: list[Part]

    @property
    def failed(self) -> int:
        """How many elements failed."""
        return sum(part.number for part in self.parts if part.state == State.FAILED)


@dataclass(frozen=True, slots=True)
class Grid:
    """Elements of a step as cells, a page of them, and the one that is looked at."""

    step: Step
    cells: SafeString
    first: int
    last: int
    earlier: int | None
    later: int | None


def rows_of(runs: Iterable[Run]) -> list[RunRow]:
    """Return the runs with their numbers; one query."""
    found = list(runs)
    counts = counts_of(found)
    return [RunRow(run, parts_of(counts[run.pk], run.size)) for run in found]


def listed_runs(user: User, *, finished: bool, mine: bool, words: str) -> list[RunRow]:
    """Return the runs that stand above the sessions of a list, the newest first; two queries, one without runs."""
    visible: QuerySet[Run] = Run.objects.visible_to(user).select_related("owner")
    rows = visible.filter(owner=user) if mine else visible
    for word in words.replace("\0", "").split():
        rows = rows.filter(name__icontains=word)
    found = rows.exclude(ended_at=None) if finished else rows.filter(ended_at=None)
    return rows_of(found.defer("text")[:MOST_ROWS])


def parts_of(counts: Counter[State], size: int) -> list[Part]:
    """Return the states that there are, in the order of their lives."""
    found, start = [], 0.0
    for state in _ORDER:
        if number := counts[state]:
            percent = 100 * number / max(size, 1)
            found.append(Part(state, appearance_of(state).word, TONES[state], number, percent, start))
            start += percent
    return found


def step_rows(run: Run) -> list[StepRow]:
    """Return the steps of a run with their numbers; three queries."""
    counts = step_counts(run)
    return [StepRow(step, parts_of(counts[step.pk], step.size)) for step in steps_of(run)]


def grid_of(step: Step, start: int, address: str, chosen: int | None, state: str) -> Grid:
    """Return a page of the elements of a step, or of those in a state; two queries."""
    rows = Task.objects.filter(step=step)
    if state in State.values:
        rows = rows.filter(state=state)
    number = rows.count()
    start = min(max(start, 0), max(number - 1, 0)) // MOST_CELLS * MOST_CELLS
    found = rows.order_by("place").values_list("index", "state")[start : start + MOST_CELLS]
    words = {one: appearance_of(one).word for one in State}
    cells = format_html_join(
        "",
        '<a class="cell tone-{}{}" href="{}&index={}#element" title="{}: {}" aria-label="{}: {}"{}></a>',
        (
            (
                TONES[State(one)],
                " is-skipped" if one == State.SKIPPED else "",
                address,
                index,
                index,
                words[State(one)],
                index,
                words[State(one)],
                mark_safe(' aria-current="true"') if index == chosen else "",
            )
            for index, one in found
        ),
    )
    last = min(start + MOST_CELLS, number)
    return Grid(
        step,
        cells,
        start + 1 if number else 0,
        last,
        start - MOST_CELLS if start else None,
        start + MOST_CELLS if last < number else None,
    )


def attempts_of(task: Task) -> list[dict[str, Any]]:
    """Return the tries of an element, the newest first; one query."""
    rows = Attempt.objects.filter(task=task).select_related("session").order_by("-number")[:MOST_ROWS]
    return [{"number": one.number, "session": one.session} for one in rows]


def summary(row: RunRow) -> str:
    """Return the numbers of a run in a few words, for its notification."""
    return ", ".join(_("%(number)s %(state)s") % {"number": one.number, "state": one.word.lower()} for one in row.parts)
