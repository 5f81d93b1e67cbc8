"""Parts of the launcher that reload while the user types."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from backendai.domain.compute.status import Status
from backendai.domain.planning.amounts.free import waiting_in
from backendai.domain.planning.turns import Busy
from backendai.portal.web.dashboard.images import build_by_image, builds_for
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.launch.as_script import scripts_beside
from backendai.portal.web.launch.draft import asked_owner
from backendai.portal.web.launch.fields.allocation import allocation_of
from backendai.portal.web.launch.form import LaunchForm
from backendai.portal.web.launch.resources import ground_of, may_see_room, room_of
from backendai.portal.web.launch.review import review_of
from backendai.portal.web.session.reasons.outlook import outlook_of_form


@signed_in("POST")
def launch_amounts(request: PageRequest) -> HttpResponse:
    """Return the presets and the bounds of every amount for the form's current state."""
    form = _form(request)
    owner = asked_owner(request).owner
    context: dict[str, Any] = {"form": form, "allocation": allocation_of(form, owner, request.user)}
    if may_see_room(request.user) and (ground := ground_of(form, owner, request.user)):
        context["room"] = room_of(ground, waiting_in(ground.found.group))
    return render(request, "web/launch/_amounts.html", context)


@signed_in("POST")
def launch_preview(request: PageRequest) -> HttpResponse:
    """Return the line with the form's errors. Without errors it shows the result of the next scheduler pass."""
    form = _form(request)
    review = review_of(form, request.user)
    context: dict[str, Any] = {"review": review}
    if review.checked:
        try:
            outlook = outlook_of_form(request.user, form, review.checked, now=timezone.now())
        except Busy as error:
            context["busy"] = error.message
        else:
            begins = form.cleaned_data["starts_at"] if outlook.code == "start-time-not-reached" else None
            replaced = form.cleaned_data["replaces"]
            replaced = replaced if replaced and replaced.status == Status.PENDING else None
            context |= {"outlook": outlook, "begins": begins, "replaced": replaced}
    return render(request, "web/launch/_outlook.html", context)


@signed_in("POST")
def launch_review(request: PageRequest) -> HttpResponse:
    """Return the cards of the last step, with the form's errors."""
    form = _form(request)
    review = review_of(form, request.user)
    context = {
        "form": form,
        "review": review,
        "scripts": scripts_beside(review, request),
        "owner": asked_owner(request).owner,
    }
    return render(request, "web/launch/_review.html", context)


def _form(request: PageRequest) -> LaunchForm:
    slots = {name.removeprefix("slot.") for name in request.POST if name.startswith("slot.")}
    owner = asked_owner(request).owner
    return LaunchForm(request.POST, user=owner, actor=request.user, slots=slots)


@signed_in("POST")
def launch_environments(request: PageRequest) -> HttpResponse:
    """Return the environments for the project and group in the form."""
    owner = asked_owner(request).owner
    form = LaunchForm(request.POST, user=owner, actor=request.user)
    context = {"form": form, "builds": build_by_image(builds_for(owner)), "is_renewed": True}
    return render(request, "web/launch/_environment_choice.html", context)
