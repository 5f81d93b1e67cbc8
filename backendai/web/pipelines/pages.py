"""The list of runs, and the page of one: its steps, the grid of elements, what failed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.pipelines.comparing import differences, last_good
from backendai.pipelines.elements import MOST_TASKS
from backendai.pipelines.explaining import why_waits
from backendai.pipelines.models import Run, State, Step, Task
from backendai.pipelines.showing import MOST_FAILURES, counts_of, failures_of
from backendai.web.pipelines.graphs import graph_of
from backendai.web.pipelines.rows import RunRow, attempts_of, grid_of, parts_of, rows_of, step_rows
from backendai.web.requests import PageRequest

SECTION = {"section": "sessions"}
_SIZE = 50
_ASK_NO_MORE = 286  # htmx ends its polling


@require_safe
@never_cache
@login_required
def runs(request: PageRequest) -> HttpResponse:
    """Show the runs that one may see, the newest first."""
    rows = Run.objects.visible_to(request.user).select_related("owner").defer("text")
    start = max(0, _number(request.GET.get("start", "")) or 0)
    found = list(rows[start : start + _SIZE + 1])
    links = {"newer": max(0, start - _SIZE) if start else None, "older": start + _SIZE if len(found) > _SIZE else None}
    context = {"rows": rows_of(found[:_SIZE]), "links": links} | SECTION
    return render(request, "web/pipelines/list.html", context)


@require_safe
@never_cache
@login_required
def run(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Show a run; ``?step=`` and ``?index=`` choose an element, ``?state=`` narrows the grid."""
    return run_page(request, find_run(request, run_id))


@require_safe
@never_cache
@login_required
def board(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Return the part of the page that changes while the run goes on."""
    found = find_run(request, run_id)
    status = _ASK_NO_MORE if found.is_over else 200
    return render(request, "web/pipelines/_refresh.html", _context(request, found) | {"is_news": True}, status=status)


@require_safe
@never_cache
@login_required
def failures(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Show what failed, each with the end of its log."""
    found = find_run(request, run_id)
    context = {"run": found, "failures": failures_of(found), "most": MOST_FAILURES} | SECTION
    return render(request, "web/pipelines/failures.html", context)


@require_safe
@never_cache
@login_required
def compare(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Show what differs from the newest earlier run of this name that succeeded."""
    found = find_run(request, run_id)
    before = last_good(found)
    context = {"run": found, "before": before, "differences": differences(found, before) if before else []}
    return render(request, "web/pipelines/compare.html", context | SECTION)


def find_run(request: PageRequest, run_id: UUID) -> Run:
    """Return a run that one may see; else 404."""
    found: Run = get_object_or_404(Run.objects.visible_to(request.user).select_related("owner", "project"), pk=run_id)
    return found


def run_page(request: PageRequest, found: Run, *, status: int = 200, refusal: str = "") -> HttpResponse:
    """Return the page of a run, with what a verb refused."""
    context = _context(request, found) | {"refusal": refusal}
    return render(request, "web/pipelines/run.html", context, status=status)


def _context(request: PageRequest, found: Run) -> dict[str, Any]:
    rows = step_rows(found)
    total = RunRow(found, parts_of(counts_of([found])[found.pk], found.size))
    step = next((row.step for row in rows if row.step.name == request.GET.get("step")), rows[0].step)
    index, state = _number(request.GET.get("index", "")), request.GET.get("state", "")
    said = {"step": step.name} | ({"state": state} if state in State.values else {})
    address = f"{reverse('web:run', args=[found.pk])}?{urlencode(said)}"
    grid = grid_of(step, _number(request.GET.get("start", "")) or 0, address, index, state)
    numbers = {part.state: part.number for part in total.parts}
    return {
        "run": found,
        "row": total,
        "step_rows": rows,
        "graph": graph_of(found, rows),
        "step": step,
        "grid": grid,
        "parts": next(row.parts for row in rows if row.step.pk == step.pk),
        "address": address,
        "state": state,
        "element": _element(found, step, index),
        "failed": numbers.get(State.FAILED, 0),
        "may_retry": bool(numbers.get(State.FAILED) or (found.is_over and numbers.get(State.CANCELLED))),
        "is_live": found.ended_at is None,
        "most": MOST_TASKS,
        "query": request.GET.urlencode(),
        **SECTION,
    }


def _element(found: Run, step: Step, index: int | None) -> dict[str, Any] | None:
    if index is None and step.size == 1:
        task = Task.objects.filter(step=step).select_related("session").first()
    else:
        task = (
            Task.objects.filter(step=step, index=index).select_related("session").first() if index is not None else None
        )
    if task is None:
        return None
    task.step = step
    values = step.values[task.place] if step.values else {}
    reasons = why_waits(found, task, timezone.now())
    return {"task": task, "values": values, "reasons": reasons, "attempts": attempts_of(task)}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None
