"""The user's recent launches, and actions on them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.messages import in_words
from backendai.domain.compute.models.sessions import LaunchRecord
from backendai.domain.compute.services.launching.recent import delete_launch, pin_launch, recent_launch, rename_launch
from backendai.portal.web.frame.requests import PageRequest
from backendai.portal.web.launch.recent import recent_list


@require_safe
@never_cache
@login_required
def recent(request: PageRequest) -> HttpResponse:
    """Show the user's recent launches; for htmx only the list."""
    return _shown(request, {})


@require_POST
@login_required
def change(request: PageRequest, recent_launch_id: UUID) -> HttpResponse:
    """Rename, pin, unpin or delete a recent launch."""
    try:
        record = recent_launch(request.user, recent_launch_id)
    except NotFound as error:
        raise Http404 from error
    try:
        _do(request, record, request.POST.get("action", ""))
    except UserError as error:
        if request.htmx:
            return _shown(
                request, {"wrong": record.pk, "refusal": error.message, "typed": request.POST.get("name", "")}
            )
        messages.error(request, in_words(error.message))
    return _shown(request, {}) if request.htmx else redirect("web:recent")


def _do(request: PageRequest, record: LaunchRecord, action: str) -> None:
    if action == "rename":
        rename_launch(request.user, record, request.POST.get("name", "").strip())
    elif action in ("pin", "unpin"):
        pin_launch(request.user, record, action == "pin")
    elif action == "delete":
        delete_launch(request.user, record)
    else:
        raise UserError("Unknown action {action}.", action=repr(action[:20]), field="action", code="unknown-action")


def _shown(request: PageRequest, more: dict[str, Any]) -> HttpResponse:
    context = {"section": "sessions", "launches": recent_list(request.user), **more}
    template = "web/launch/_recent_list.html" if request.htmx else "web/launch/recent.html"
    return render(request, template, context)
