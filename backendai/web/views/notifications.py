"""The bell: what goes on in the background for the one who asks, and how it ended."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from backendai.activity.jobs import cancel_job, clear_jobs, see_jobs
from backendai.activity.models import BackgroundJob
from backendai.core.errors import NotFound, UserError
from backendai.web.requests import PageRequest

_MOST_SHOWN = 50


@require_safe
@never_cache
@login_required
def notifications(request: PageRequest) -> HttpResponse:
    """Show what goes on and what ended; htmx asks for the list alone."""
    template = "web/_notifications.html" if request.htmx else "web/notifications.html"
    return render(request, template, _context(request))


@require_safe
@never_cache
@login_required
def bell(request: PageRequest) -> HttpResponse:
    """Return the mark on the bell: how many jobs go on, how many ended unseen; one query."""
    jobs = BackgroundJob.objects.in_bell_of(request.user).order_by()
    over = Q(seen_at=None) & ~Q(status="RUNNING")
    counts = jobs.aggregate(running=Count("pk", filter=Q(status="RUNNING")), unseen=Count("pk", filter=over))
    return render(request, "web/_bell.html", counts)


@require_POST
@login_required
def seen(request: PageRequest) -> HttpResponse:
    """Note that one has read how one's jobs ended."""
    see_jobs(request.user, now=timezone.now())
    return _answer(request)


@require_POST
@login_required
def clear(request: PageRequest) -> HttpResponse:
    """Put away what is over."""
    clear_jobs(request.user, now=timezone.now())
    return _answer(request)


@require_POST
@login_required
def job_cancel(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Ask for the end of a job."""
    try:
        cancel_job(request.user, job_id, now=timezone.now())
    except NotFound as error:
        raise Http404 from error
    except UserError as error:
        if not request.htmx:
            messages.error(request, error.message)
    return _answer(request)


def _answer(request: PageRequest) -> HttpResponse:
    if request.htmx:
        return render(request, "web/_notifications.html", _context(request))
    return redirect("web:notifications")


def _context(request: PageRequest) -> dict[str, Any]:
    jobs = BackgroundJob.objects.in_bell_of(request.user)
    return {"section": "notifications", "jobs": list(jobs[:_MOST_SHOWN])}
