"""The list of compute sessions, its single rows, and the panel of free resources beside it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Prefetch, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.accounts.models import User
from backendai.catalog.models import Image
from backendai.cluster.site import site_settings
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.querysets import SessionQuerySet
from backendai.web.images import builds_for
from backendai.web.paging import LongPaginator
from backendai.web.requests import PageRequest
from backendai.web.resources import RoomBars, rooms_for

PAGE_SIZE = 50


@require_safe
@never_cache
@login_required
def sessions(request: PageRequest) -> HttpResponse:
    """Show the user's sessions, active or finished, found by name, image or owner; htmx asks for the list alone."""
    context = _list_context(request)
    if request.htmx and not request.htmx.boosted:
        return render(request, "web/_session_list.html", context)
    return render(request, "web/sessions.html", context | {"rooms": _rooms(request)})


@require_safe
@never_cache
@login_required
def session_row(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Return one row of the list as it is now."""
    found = get_object_or_404(_rows(request.user), pk=session_id)
    return render(request, "web/_session_row.html", {"session": found, "section": "sessions"})


@require_safe
@never_cache
@login_required
def resources_panel(request: PageRequest) -> HttpResponse:
    """Return what is free and taken in the groups that are open to the user."""
    return render(request, "web/_resources.html", {"rooms": _rooms(request)})


def _rooms(request: PageRequest) -> list[RoomBars] | None:
    """Return what is free in the groups; None where the site keeps that to its administrators."""
    if not request.user.is_superadmin and not site_settings().group_resources_visible:
        return None
    return rooms_for(request.user)


def _list_context(request: PageRequest) -> dict[str, Any]:
    finished = request.GET.get("view") == "finished"
    words = request.GET.get("q", "").strip()[:100]
    visible = ComputeSession.objects.visible_to(request.user)
    active, everything = visible.live().count(), visible.count()  # each by an index alone
    of_view = visible.finished() if finished else visible.live()
    number = None if words else everything - active if finished else active
    pages = LongPaginator(_rows(request.user), _matching(of_view, words), PAGE_SIZE, number)
    page = pages.get_page(request.GET.get("page"))
    return {
        "section": "sessions",
        "view": "finished" if finished else "active",
        "q": words,
        "page": page,
        "builds": builds_for(request.user),
        "active_count": active,
        "finished_count": everything - active,
    }


def _rows(user: User) -> SessionQuerySet:
    kernels = Prefetch("kernels", Kernel.objects.only("session_id", "rank", "status", "progress", "exit_code"))
    found: SessionQuerySet = ComputeSession.objects.visible_to(user)
    return found.select_related("image", "resource_group", "owner").prefetch_related(kernels)


def _matching(rows: SessionQuerySet, words: str) -> SessionQuerySet:
    for word in words.split():
        # Looked up in the small tables first: joined, every session would look there.
        images, owners = Image.objects.filter(name__icontains=word), User.objects.filter(email__icontains=word)
        rows = rows.filter(Q(name__icontains=word) | Q(image__in=images) | Q(owner__in=owners))
    return rows
