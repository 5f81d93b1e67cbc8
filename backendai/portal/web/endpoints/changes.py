"""The actions of owners on an endpoint's page."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.serving.models import AutoScalingRule, DesiredState, EndpointToken, Revision
from backendai.domain.serving.replaying import replay_yesterday
from backendai.domain.serving.services.checks import check_numbers
from backendai.domain.serving.services.endpoints import (
    change_endpoint,
    retry_now,
    roll_back,
    set_rules,
    set_wish,
    update_endpoint,
)
from backendai.domain.serving.services.tokens import create_token, revoke_token
from backendai.portal.web.account.menu import blame
from backendai.portal.web.endpoints.forms import RevisionForm, initial_of, revision_after
from backendai.portal.web.endpoints.page_forms import RuleForm, ScaleForm, TokenForm
from backendai.portal.web.endpoints.pages import SECTION, endpoint_page, find_endpoint
from backendai.portal.web.endpoints.plots import plot_of_replay
from backendai.portal.web.endpoints.request_fields import SettingsForm
from backendai.portal.web.frame.requests import PageRequest, signed_in

_WISHES = {"start": DesiredState.RUN, "stop": DesiredState.STOPPED, "delete": DesiredState.DELETED}


@signed_in("POST")
def scale(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Change the limits of the number of replicas; with ``go=try`` show their effect on yesterday's requests."""
    found, form = find_endpoint(request, endpoint_id), ScaleForm(request.POST)
    if form.is_valid():
        numbers = dict(form.cleaned_data)
        minutes = numbers.pop("asleep_minutes")
        try:
            if request.POST.get("go") == "try":
                check_numbers(**numbers)
                tried = replay_yesterday(found, timezone.now(), **numbers)
                return endpoint_page(request, found, scale_form=form, tried=tried, tried_plot=plot_of_replay(tried))
            sleep = {} if minutes is None else {"asleep_after": minutes * 60}
            change_endpoint(found, request.user, **numbers, **sleep)
            messages.success(request, _("The numbers are saved."))
            return redirect("web:endpoint", endpoint_id)
        except UserError as error:
            blame(form, error)
    return endpoint_page(request, found, status=422, scale_form=form)


@signed_in("GET", "POST")
def update(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Show the form for a new revision, filled with the current one; on POST start the update."""
    found = find_endpoint(request, endpoint_id)
    current = get_object_or_404(Revision.objects.select_related("image"), pk=found.current_id)
    if request.method != "POST":
        reveals = found.owner_id == request.user.pk
        form = RevisionForm(initial=initial_of(current, reveals=reveals), user=found.owner)
    else:
        form = RevisionForm(request.POST, user=found.owner)
        if form.is_valid():
            try:
                update_endpoint(found, request.user, revision_after(current, form.revision()))
                return redirect("web:endpoint", endpoint_id)
            except UserError as error:
                blame(form, error)
    context = {"form": form, "endpoint": found} | SECTION
    return render(request, "web/endpoints/update.html", context, status=422 if form.is_bound else 200)


@signed_in("POST")
def go_back(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Replace the current revision with an earlier one."""
    found = find_endpoint(request, endpoint_id)
    number = request.POST.get("revision", "")
    try:
        roll_back(found, request.user, int(number) if number.isdecimal() and len(number) < 9 else 0)
    except UserError as error:
        messages.error(request, in_words(error.message))
    return redirect("web:endpoint", endpoint_id)


@signed_in("POST")
def state(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Start, stop or delete the endpoint, retry a failed start, or allow a gap in an update."""
    found, order = find_endpoint(request, endpoint_id), request.POST.get("order", "")
    try:
        if order in _WISHES:
            set_wish(found, request.user, _WISHES[order])
        elif order == "retry":
            retry_now(found, request.user)
        elif order == "gap":
            change_endpoint(found, request.user, max_unavailable=max(found.max_unavailable, 1))
        else:
            raise UserError(
                "{order} is not an order: choose start, stop, delete, retry or gap.", order=repr(order[:32])
            )
    except UserError as error:
        messages.error(request, in_words(error.message))
        return redirect("web:endpoint", endpoint_id)
    if order == "delete":
        messages.success(request, _("The endpoint %(name)s is deleted.") % {"name": found.name})
        return redirect("web:endpoints")
    return redirect("web:endpoint", endpoint_id)


@signed_in("POST")
def settings(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Change who may send requests, how long requests wait, and how updates proceed."""
    found, form = find_endpoint(request, endpoint_id), SettingsForm(request.POST)
    if form.is_valid():
        try:
            change_endpoint(found, request.user, **form.settings())
            messages.success(request, _("The settings are saved."))
            return redirect("web:endpoint", endpoint_id)
        except UserError as error:
            blame(form, error)
    return endpoint_page(request, found, status=422, settings_form=form)


@signed_in("POST")
def rules(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Add a scaling rule, or remove one."""
    found, kept = find_endpoint(request, endpoint_id), request.POST.get("remove", "")
    own = list(found.rules.all())
    if kept:
        set_rules(found, request.user, [one for one in own if str(one.pk) != kept])
        return redirect("web:endpoint", endpoint_id)
    form = RuleForm(request.POST, user=request.user)
    if form.is_valid():
        try:
            set_rules(found, request.user, [*own, AutoScalingRule(**form.cleaned_data)])
            messages.success(request, _("The rule is saved."))
            return redirect("web:endpoint", endpoint_id)
        except UserError as error:
            blame(form, error)
    return endpoint_page(request, found, status=422, rule_form=form)


@signed_in("POST")
def tokens(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Create a token and show its text once. The text is not stored, so no redirect follows."""
    found, form = find_endpoint(request, endpoint_id), TokenForm(request.POST)
    if form.is_valid():
        try:
            _token, text = create_token(found, request.user, **form.values())
            return endpoint_page(request, found, new_token=text)
        except UserError as error:
            blame(form, error)
    return endpoint_page(request, found, status=422, token_form=form)


@signed_in("POST")
def revoke(request: PageRequest, endpoint_id: UUID, endpoint_token_id: UUID) -> HttpResponse:
    """Revoke a token."""
    found = find_endpoint(request, endpoint_id)
    revoke_token(get_object_or_404(EndpointToken, endpoint=found, pk=endpoint_token_id), request.user)
    messages.success(request, _("The token is revoked; programs that use it are refused from now on."))
    return redirect("web:endpoint", endpoint_id)
