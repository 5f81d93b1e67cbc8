"""The list of runs, and the page of a run: its steps, the grid of elements, and its failures."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from backendai.domain.pipelines.comparing import differences, last_good
from backendai.domain.pipelines.elements import MOST_TASKS
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.presentation import MOST_FAILURES, failures_of
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.pipelines.board import board_of, number_in
from backendai.portal.web.pipelines.rows import rows_of

SECTION = {"section": "sessions"}
_SIZE = 50
_ASK_NO_MORE = 286  # htmx ends its polling


@signed_in("GET")
def runs(request: PageRequest) -> HttpResponse:
    """Show the visible runs, the newest first."""
    rows = Run.objects.visible_to(request.user).select_related("owner").defer("text")
    start = max(0, number_in(request.GET, "start") or 0)
    found = list(rows[start : start + _SIZE + 1])
    links = {"newer": max(0, start - _SIZE) if start else None, "older": start + _SIZE if len(found) > _SIZE else None}
    context = {"rows": rows_of(found[:_SIZE]), "links": links} | SECTION
    return render(request, "web/pipelines/list.html", context)


@signed_in("GET")
def run(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Show a run; ``?step=`` and ``?index=`` select an element, ``?state=`` filters the grid."""
    return run_page(request, find_run(request, run_id))


@signed_in("GET")
def board(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Return the live part of the page, without parts that the page already has. 204 if nothing has changed."""
    found = find_run(request, run_id, without=("text", "parameters", "workspace"))
    shown = board_of(found, request.GET)
    if shown.is_seen:
        return HttpResponse(status=204)
    status = 200 if found.ended_at is None else _ASK_NO_MORE
    return render(
        request,
        "web/pipelines/_refresh.html",
        shown.context(seen=request.GET.get("seen", "")) | {"is_news": True},
        status=status,
    )


@signed_in("GET")
def failures(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Show the failed elements, each with the end of its log."""
    found = find_run(request, run_id)
    context = {"run": found, "failures": failures_of(found, timezone.now()), "most": MOST_FAILURES} | SECTION
    return render(request, "web/pipelines/failures.html", context)


@signed_in("GET")
def compare(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Show the differences from the newest earlier run of this name that succeeded."""
    found = find_run(request, run_id)
    before = last_good(found)
    context = {"run": found, "before": before, "differences": differences(found, before) if before else []}
    return render(request, "web/pipelines/compare.html", context | SECTION)


def find_run(request: PageRequest, run_id: UUID, *, without: Sequence[str] = ()) -> Run:
    """Return a visible run without loading these fields; else 404."""
    rows = Run.objects.visible_to(request.user).select_related("owner", "project").defer(*without)
    found: Run = get_object_or_404(rows, pk=run_id)
    return found


def run_page(request: PageRequest, found: Run, *, status: int = 200, refusal: str = "") -> HttpResponse:
    """Return the page of a run; ``refusal`` is the error of a rejected action."""
    context = board_of(found, request.GET).context() | SECTION
    context |= {"refusal": refusal, "most": MOST_TASKS, "query": request.GET.urlencode()}
    return render(request, "web/pipelines/run.html", context, status=status)
