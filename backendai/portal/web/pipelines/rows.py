"""Runs as rows of lists, and the steps and elements on a run's page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.forecasts.ends import run_ends
from backendai.domain.pipelines.models import Attempt, Run, State, Task
from backendai.domain.pipelines.presentation import (
    LAUNCHED,
    QUEUED,
    RUNNING,
    TERMINATING,
    Counts,
    StepOutline,
    counts_of,
    first_waits,
    outline_of,
    shown_state,
    status_of,
)
from backendai.portal.web.frame.statuses import appearance_of
from backendai.portal.web.pipelines.parts import Parts
from backendai.scheduler.forecasts.ends import RunEnd

MOST_CELLS = 1_000
MOST_ROWS = 20
_CELLS = 25
_ORDER = (State.SUCCEEDED, State.FAILED, TERMINATING, RUNNING, QUEUED, State.WAITING, State.SKIPPED, State.CANCELLED)
TONES: dict[str, str] = {
    State.SUCCEEDED: "good",
    State.FAILED: "bad",
    TERMINATING: "over",
    RUNNING: "busy",
    QUEUED: "wait",
    State.WAITING: "wait",
    State.SKIPPED: "over",
    State.CANCELLED: "over",
}


@dataclass(frozen=True, slots=True)
class Part:
    """The number of elements in a state. ``percent``: of all elements; ``start``: the sum of the states before it."""

    state: str
    word: str
    tone: str
    number: int
    percent: float
    start: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run with the numbers of its elements. ``wait``: why its first queued element waits. ``end``: when it probably
    ends."""

    run: Run
    parts: list[Part]
    wait: str = ""
    end: RunEnd | None = None

    @property
    def over(self) -> int:
        """The number of ended elements."""
        return sum(part.number for part in self.parts if part.state not in (State.WAITING, *LAUNCHED))

    @property
    def status(self) -> str:
        """The status to show: WAITING while none of its elements runs."""
        return status_of(self.run, {part.state: part.number for part in self.parts})

    @property
    def bar(self) -> SafeString:
        """The numbers of elements as a bar with text."""
        return bar_of(self.parts)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step with the numbers of its elements by state."""

    step: StepOutline
    counts: Counts

    @property
    def parts(self) -> list[Part]:
        """The states that have elements."""
        return parts_of(self.counts, self.step.size)

    @property
    def bar(self) -> SafeString:
        """The numbers of elements as a bar with text."""
        return bar_of(self.parts)


@dataclass(frozen=True, slots=True)
class Grid:
    """A page of a step's elements as cells."""

    cells: SafeString
    first: int
    last: int
    earlier: int | None
    later: int | None


def rows_of(runs: Iterable[Run]) -> list[RunRow]:
    """Return the runs with the numbers of their elements; one query, one more if an element is queued, and five if a
    run goes on."""
    found = list(runs)
    counts = counts_of(found)
    waits = first_waits([run for run in found if counts[run.pk][QUEUED]])
    ends = run_ends(found, timezone.now())
    return [RunRow(run, parts_of(counts[run.pk], run.size), waits.get(run.pk, ""), ends.get(run.pk)) for run in found]


def listed_runs(user: User, *, finished: bool, mine: bool, words: str) -> list[RunRow]:
    """Return the runs shown above a list of sessions, the newest first. At most eight queries."""
    visible: QuerySet[Run] = Run.objects.visible_to(user).select_related("owner")
    rows = visible.filter(owner=user) if mine else visible
    for word in words.replace("\0", "").split():
        rows = rows.filter(name__icontains=word)
    found = rows.exclude(ended_at=None) if finished else rows.filter(ended_at=None)
    return rows_of(found.defer("text")[:MOST_ROWS])


def parts_of(counts: Counts, size: int) -> list[Part]:
    """Return the states that have elements, in the order of an element's life."""
    found, start = [], 0.0
    for state in _ORDER:
        if number := counts[state]:
            percent = 100 * number / max(size, 1)
            found.append(Part(state, appearance_of(state).word, TONES[state], number, percent, start))
            start += percent
    return found


def bar_of(parts: Iterable[Part]) -> SafeString:
    """Return a bar with its numbers as text. Built without a template, as a page has a hundred of them."""
    rects, words = [], []
    for one in parts:
        rects.append(f'<rect class="tone-{one.tone}" x="{one.start:.2f}" width="{one.percent:.2f}" height="6"/>')
        words.append(f'<span class="status tone-{one.tone} number">{one.number} {escape(one.word.lower())}</span> ')
    return mark_safe(  # noqa: S308  (numbers, and words that are escaped)
        '<svg class="run-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'{"".join(rects)}</svg><span class="run-counts">{"".join(words)}</span>'
    )


def step_rows(run: Run, counts: Mapping[UUID, Counts]) -> list[StepRow]:
    """Return the steps of a run with the numbers of their elements; two queries."""
    return [StepRow(step, counts[step.id]) for step in outline_of(run)]


def grid_of(address: str, row: StepRow, start: int, chosen: int | None, state: str, parts: Parts) -> Grid:
    """Return a page of a step's elements, or of those in a state; one query. ``address``: of the run's page."""
    rows = Task.objects.filter(step=row.step.id).annotate(shown=shown_state())
    number, query = row.step.size, f"{address}?step={row.step.name}"
    if state in TONES:
        rows, number, query = rows.filter(shown=state), row.counts[state], f"{query}&amp;state={state}"
    start = min(max(start, 0), max(number - 1, 0)) // MOST_CELLS * MOST_CELLS
    found = rows.order_by("index").values_list("index", "shown")[start : start + MOST_CELLS]
    last = min(start + MOST_CELLS, number)
    return Grid(
        parts.cut("div", "run-cells", _cells(found, query, chosen), _CELLS),
        start + 1 if number else 0,
        last,
        start - MOST_CELLS if start else None,
        start + MOST_CELLS if last < number else None,
    )


def _cells(tasks: Iterable[tuple[int, str]], query: str, chosen: int | None) -> list[str]:
    """Return the HTML of a link for each element. ``query`` has an id, a name and a state, which need no escaping."""
    begins, ends = {}, {}
    for state in TONES:
        faded = " is-skipped" if state == State.SKIPPED else ""
        begins[state] = f'<a class="cell tone-{TONES[state]}{faded}" href="{query}&amp;index='
        ends[state] = f': {escape(appearance_of(state).word)}"'
    return [
        f'{begins[state]}{index}#element" title="{index}{ends[state]}'
        + (' aria-current="true"></a>' if index == chosen else "></a>")
        for index, state in tasks
    ]


def attempts_of(task: Task) -> list[dict[str, Any]]:
    """Return the attempts of an element, the newest first; one query."""
    rows = Attempt.objects.filter(task=task).select_related("session").order_by("-number")[:MOST_ROWS]
    return [{"number": one.number, "session": one.session} for one in rows]


def summary(row: RunRow) -> str:
    """Return the numbers of a run's elements as a short text, for its notification."""
    return ", ".join(_("%(number)s %(state)s") % {"number": one.number, "state": one.word.lower()} for one in row.parts)
