"""The launch form."""

from __future__ import annotations

import uuid
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from backendai.accounts.acting import owner_named
from backendai.accounts.models import User
from backendai.accounts.rates import check_launch_rate
from backendai.compute.models import ComputeSession
from backendai.compute.services.ending import terminate_session
from backendai.compute.services.recent import launch_and_remember, parameters_of, recent_launch
from backendai.compute.status import SessionType, Status
from backendai.core.errors import NotFound, UserError
from backendai.planning.turns import Busy
from backendai.web.images import build_by_image, builds_for
from backendai.web.launcher.address import named_in
from backendai.web.launcher.form import LaunchForm
from backendai.web.launcher.presets import mark_obstacles, obstacles_in
from backendai.web.launcher.refill import Refill, initial_of, refill_of
from backendai.web.launcher.steps import REVIEW, LaunchStep, step_named, steps_of
from backendai.web.outlook import outlook_of_form
from backendai.web.requests import PageRequest
from backendai.web.resources import rooms_for


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def launch(request: PageRequest) -> HttpResponse:
    """Show the form; on POST create the session and go to where its output will appear, or only look at what was typed
    (``go=review``)."""
    refill = _refill(request)
    owner, unknown = (refill.owner, "") if refill else _owner(request)
    rooms = rooms_for(owner)
    slots = {bar.slot for room in rooms for bar in room.bars}
    named = {"owner": "" if owner == request.user else owner.email}
    form = LaunchForm(
        request.POST or None, user=owner, actor=request.user, slots=slots, initial=_initial(request, refill) | named
    )
    if refill:
        refill.fill(form)
    if request.method == "POST" and form.is_valid() and request.POST.get("go") != "review":
        try:
            created = _create(request, form)
        except UserError as error:
            form.refuse(error)
        else:
            part = "log" if created.session_type == SessionType.BATCH else "terminal"
            return redirect(f"{reverse('web:session', args=[created.pk])}#{part}")
    mark_obstacles(form.presets, obstacles_in(request.user, *form.place()))
    steps = steps_of(form.errors)
    context = {
        "section": "sessions",
        "steps": steps,
        "step": _step(request, steps),
        "form": form,
        "rooms": rooms,
        "builds": build_by_image(builds_for(owner)),
        "replaced": _replaced(request),
        "refill": refill,
        "owner": owner,
        "unknown_owner": unknown,
        "asked_owner": request.POST.get("owner", request.GET.get("owner", "")),
        "may_act": request.user.role != User.Role.USER,
    }
    return render(request, "web/launch/page.html", context, status=422 if form.errors and not refill else 200)


@require_POST
@never_cache
@login_required
def launch_presets(request: PageRequest) -> HttpResponse:
    """Return the presets as they fit in the project and group that the form names now."""
    form = LaunchForm(request.POST, user=request.user)
    mark_obstacles(form.presets, obstacles_in(request.user, *form.place()))
    return render(request, "web/launch/_presets.html", {"form": form})


@require_POST
@never_cache
@login_required
def launch_preview(request: PageRequest) -> HttpResponse:
    """Return the line that says what would become of the form as it is now, or why it would be refused."""
    slots = {name.removeprefix("slot.") for name in request.POST if name.startswith("slot.")}
    owner, _ = _owner(request)
    form = LaunchForm(request.POST, user=owner, actor=request.user, slots=slots)
    context: dict[str, Any] = {}
    if not form.is_valid():
        context["refusal"] = form.first_wrong()
    else:
        try:
            context["outlook"] = outlook_of_form(request.user, form, now=timezone.now())
            replaced = form.cleaned_data["replaces"]
            context["replaced"] = replaced if replaced and replaced.status == Status.PENDING else None
        except Busy as error:
            context["busy"] = error.message
        except UserError as error:
            context["refusal"] = form.refusal(error)
    return render(request, "web/launch/_outlook.html", context)


def _step(request: PageRequest, steps: list[LaunchStep]) -> int:
    """Return the step to show: the first with something wrong, the last of a form that was sent, else the one that the
    address names."""
    usual = REVIEW if request.method == "POST" else step_named(request.GET.get("step", ""))
    return next((step.number for step in steps if step.is_wrong), usual)


def _owner(request: PageRequest) -> tuple[User, str]:
    """Return for whom the session is to be, and what is wrong with the address that was typed."""
    asked = request.POST if request.method == "POST" else request.GET
    try:
        return owner_named(request.user, asked.get("owner", "")[:254]), ""
    except UserError as error:
        return request.user, error.message


def _create(request: PageRequest, form: LaunchForm) -> ComputeSession:
    """Return the new session; the one whose place it takes is cancelled in the same transaction, or neither happens."""
    key = form.cleaned_data["request_key"] or None
    replaced: ComputeSession | None = form.cleaned_data["replaces"]
    now = timezone.now()
    check_launch_rate(request.user, now=now)
    with transaction.atomic():
        created = launch_and_remember(request.user, form.spec(), idempotency_key=key, now=now)[0].session
        if replaced and replaced.status == Status.PENDING:
            terminate_session(replaced, request.user)
        elif replaced and not replaced.is_terminal:
            raise UserError(f"{replaced.name} does not wait any more: it has started.", field="replaces")
    return created


def _initial(request: PageRequest, refill: Refill | None) -> dict[str, Any]:
    """Return what the form shows at first: what the address names, then what an earlier launch had."""
    return _basis(request, refill) | named_in(request.GET.dict())


def _replaced(request: PageRequest) -> ComputeSession | None:
    """Return the waiting session whose place the new one can take: the one to start again, or the one ticked."""
    model = _session_like(request)
    return model if model and model.status == Status.PENDING else None


def _basis(request: PageRequest, refill: Refill | None) -> dict[str, Any]:
    key = {"request_key": uuid.uuid4().hex}
    if refill:
        return key | refill.initial
    model = _session_like(request)
    if model is None:
        return key
    waits_for = list(model.depends_on.live().values_list("pk", flat=True))
    return key | initial_of(parameters_of(model)) | {"depends_on": waits_for}


def _refill(request: PageRequest) -> Refill | None:
    """Return what the recent launch that ``?recent=`` names fills the form with, if it is one's own."""
    if request.method == "POST":
        return None
    try:
        return refill_of(recent_launch(request.user, UUID(request.GET.get("recent", ""))), request.user)
    except (ValueError, NotFound):
        return None


def _session_like(request: PageRequest) -> ComputeSession | None:
    """Return the session that ``?like=`` names, if it is one's own: its variables may be secrets."""
    own = ComputeSession.objects.filter(owner=request.user).select_related("image", "resource_group")
    try:
        found: ComputeSession | None = own.filter(pk=request.GET.get("like", "")).first()
    except (ValidationError, ValueError):
        return None
    return found
