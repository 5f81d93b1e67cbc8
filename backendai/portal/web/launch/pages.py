"""The launch form."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.secret_names import NAME_PATTERN, VALUE_PATTERN
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.accounts.rates import check_launch_rate
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.kinds import title_of
from backendai.domain.compute.services.launching.recent import launch_and_remember, remember
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import Status
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.services.creating import array_of, create_run
from backendai.portal.web.dashboard.images import build_by_image, builds_for
from backendai.portal.web.dashboard.resources import RoomBars, rooms_for
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.launch.address import is_foreign, left_out, said_in, usual_text, with_said
from backendai.portal.web.launch.as_script import scripts_beside
from backendai.portal.web.launch.draft import FROM, LaunchDraft, asked_owner, draft_of, session_like
from backendai.portal.web.launch.field_table import REVIEW, TYPE
from backendai.portal.web.launch.fields.allocation import allocation_of
from backendai.portal.web.launch.fields.environments import OPENED, is_launch_key, opened_by
from backendai.portal.web.launch.fields.template_fields import locked_keys
from backendai.portal.web.launch.form import LaunchForm
from backendai.portal.web.launch.resources import begin_with_what_fits, ground_of, may_see_room, room_of
from backendai.portal.web.launch.review import review_of
from backendai.portal.web.launch.steps import step_named, steps_of
from backendai.portal.web.launch.values import sent_by

_ONLY_LOOK = ("review", "owner")


@signed_in("GET", "POST")
def launch(request: PageRequest) -> HttpResponse:
    """Show the form; on POST launch its session and redirect to the list.

    ``go=review`` only checks it; ``go=owner`` shows the form for another owner.
    """
    draft, asked = draft_of(request), asked_owner(request)
    owner = draft.owner
    rooms = rooms_for(owner)
    form, filled = _form(request, draft, {bar.slot for room in rooms for bar in room.bars})
    if request.method == "POST" and request.POST.get("go") not in _ONLY_LOOK and form.is_valid():
        try:
            if form.is_run():
                return redirect("web:run", _create_run(request, form).pk)
            launched = _create(request, form)
        except UserError as error:
            form.refuse(error)
        else:
            return _to_the_list(request, launched)
    context = {
        "allocation": allocation_of(form, owner, request.user),
        "rooms": _shown_rooms(request, rooms, form, owner),
        "builds": build_by_image(builds_for(owner)),
        "draft": draft,
        "owner": owner,
        "unknown_owner": "" if draft.source else asked.unknown,
        "asked_owner": asked.typed,
        "looks_up": _looks_up(request),
        "may_act": request.user.role != User.Role.USER,
    }
    page = render(request, "web/launch/page.html", context | filled | _shown(request, form))
    page.status_code = 422 if request.method == "POST" and (form.errors or context["unknown_owner"]) else 200
    return page


def _shown_rooms(
    request: PageRequest, rooms: Sequence[RoomBars], form: LaunchForm, owner: User
) -> list[RoomBars] | None:
    """Return the free resources; in the form's group over the agents that can run the image. None: hidden."""
    if not may_see_room(request.user):
        return None
    ground = ground_of(form, owner, request.user)
    return [room_of(ground, each.waiting) if ground and each.group == ground.found.group else each for each in rooms]


def _form(request: PageRequest, draft: LaunchDraft, slots: Collection[str]) -> tuple[LaunchForm, dict[str, Any]]:
    """Return the form as it was sent, or as the address fills it; and the context that the page needs for it."""
    owner, initial = draft.owner, draft.initial | {"request_key": uuid.uuid4().hex}
    initial["owner"] = "" if owner == request.user else owner.email
    form = LaunchForm(user=owner, actor=request.user, slots=slots, initial=initial)
    usual, said = sent_by(form), said_in(request.GET, form)
    form.lock(draft.locked or locked_keys(request.POST.get("template", ""), request.user))
    draft.leave_empty(form, usual)
    context: dict[str, Any] = {"usual": usual_text(usual), "left_out": left_out(), "is_from_link": False}
    context["secrets"] = NAME_PATTERN, VALUE_PATTERN
    if request.POST and not _looks_up(request):
        form.take(request.POST.copy(), request.FILES)
    elif (said or draft.source) and not _looks_up(request):
        form.take(with_said(usual, said))
        context["is_from_link"] = is_foreign(said)
        draft.explain(form, said)
    elif "preset" not in draft.initial:  # not in ``usual``: a copied address means the same whatever is free
        begin_with_what_fits(form, owner, request.user)
    return form, context


def _shown(request: PageRequest, form: LaunchForm) -> dict[str, Any]:
    """Return the context of the form's page.

    A form that was sent, or filled from an earlier launch, is shown at its review. At another step, values that are
    only missing from the address are left to the line at the foot.
    """
    is_whole = (request.method == "POST" and not _looks_up(request)) or {"recent", FROM} & set(request.GET)
    is_refused = request.method == "POST" and request.POST.get("go") not in _ONLY_LOOK
    step = REVIEW if is_refused else step_named(request.GET.get("step", ""), usual=REVIEW if is_whole else TYPE)
    review = review_of(form, request.user) if form.is_bound else None
    if review and review.is_incomplete and request.method != "POST" and step != REVIEW:
        for fault in review.faults:
            form.errors.pop(fault.field, None)
        review = None
    return {
        "section": "sessions",
        "form": form,
        "review": review,
        "scripts": scripts_beside(review, request),
        "steps": steps_of(form.errors),
        "step": step,
        "replaced": _replaced(request),
        "is_refused": is_refused,
        "opened": OPENED,
        "opened_title": title_of(OPENED),
    }


def _looks_up(request: PageRequest) -> bool:
    return request.POST.get("go") == "owner"


def _create(request: PageRequest, form: LaunchForm) -> list[ComputeSession]:
    """Launch the sessions and return them. Cancels the session that they replace in the same transaction."""
    key = form.cleaned_data["request_key"] or None
    replaced: ComputeSession | None = form.cleaned_data["replaces"]
    now = timezone.now()
    count = form.how_many()
    check_launch_rate(request.user, count, now=now)
    with transaction.atomic():
        launched = launch_and_remember(request.user, form.spec(), count, idempotency_key=key, now=now)
        if replaced and replaced.status == Status.PENDING:
            terminate_session(replaced, request.user)
        elif replaced and not replaced.is_terminal:
            raise UserError(
                "{replaced} is no longer pending: it has started.", replaced=replaced.name, field="replaces"
            )
    return [one.session for one in launched]


def _create_run(request: PageRequest, form: LaunchForm) -> Run:
    """Launch an array, or a command with retries, as a run; return the run."""
    now, data, spec = timezone.now(), form.cleaned_data, form.spec()
    check_launch_rate(request.user, 1, now=now)
    own = {name: data[name] for name in ("array_size", "matrix", "retries") if data.get(name)}
    elements = own.get("matrix") or own.get("array_size") or form.how_many()
    wish = array_of(spec, elements, retries=own.get("retries", 0))
    with transaction.atomic():
        run, is_new = create_run(request.user, wish, idempotency_key=data["request_key"] or None, now=now)
        if is_new:
            files = {"files_of_run": str(run.pk)} if spec.files else {}
            remember(request.user, spec, run.name, own | files, now=now)
    return run


def _to_the_list(request: PageRequest, launched: list[ComputeSession]) -> HttpResponse:
    """Redirect to the list of sessions, which highlights the new ones."""
    if launched[0].owner_id != request.user.pk:
        names = ", ".join(session.name for session in launched)
        told = {"names": names, "email": launched[0].owner.email}
        messages.success(request, _("Launched %(names)s for %(email)s.") % told)
    key, service = request.POST.get("request_key", ""), request.POST.get("open_app", "")
    waits_here = service == OPENED and not request.POST.get("tab_opened")
    if waits_here and is_launch_key(key) and _can_open(request, launched):
        return redirect("web:opening", launch_key=key, service=service)
    ids = ",".join(str(session.pk) for session in launched)
    return redirect(f"{reverse('web:sessions')}?launched={ids}")


def _can_open(request: PageRequest, launched: list[ComputeSession]) -> bool:
    first = launched[0]
    mine = first.owner_id == request.user.pk and first.kind.is_worked_in
    return len(launched) == 1 and mine and bool(opened_by(first.image))


def _replaced(request: PageRequest) -> ComputeSession | None:
    """Return the user's pending session that the new one replaces, or None."""
    model = session_like(request)
    return model if model and model.status == Status.PENDING else None
