"""Stops running sessions after a question, and resumes a stopped one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.forms import model_to_dict
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.base.texts.translation import ngettext
from backendai.domain.compute.models import ComputeSession, StopSchedule
from backendai.domain.compute.services.life.ending_many import MOST_ENDED
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stop_schedules import delete_schedule, set_schedule
from backendai.domain.compute.services.life.stopping import obstacle_to_stop, stop_session
from backendai.portal.web.frame.requests import PageRequest, ids_in, signed_in, way_back
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session
from backendai.scheduler.stop_times import DailyTimes


@signed_in("GET", "POST")
def stop(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Tell what is kept; on POST begin to stop. A script then gets 204, or the question with the reason."""
    found = find_session(request, session_id)
    mistake = ""
    if request.method == "POST":
        try:
            stop_session(request.user, found, now=timezone.now())
        except UserError as error:
            mistake = in_words(error.message)
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            messages.success(request, _("%(name)s is being stopped.") % {"name": found.name})
            return redirect("web:session", session_id=session_id)
    obstacle = obstacle_to_stop(found, list(found.kernels.select_related("agent")))
    reason = in_words(obstacle[1]) if obstacle else ""
    return box(
        request, found, "web/_session_stop.html", {"obstacle": reason, "mistake": mistake, "grace": settings.STOP_GRACE}
    )


class ScheduleForm(forms.Form):
    """The times at which a session is stopped and resumed."""

    stop_at = forms.TimeField(label=_l("Stop at"), widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    resume_at = forms.TimeField(
        required=False,
        label=_l("Resume at"),
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
        help_text=_l("Leave empty to resume it by hand. What you stop by hand stays stopped."),
    )
    is_weekdays = forms.BooleanField(required=False, label=_l("Monday to Friday only"))
    time_zone = forms.CharField(
        max_length=64,
        label=_l("Time zone"),
        help_text=_l("Such as Europe/Berlin."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


@signed_in("GET", "POST")
def schedule(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the form of the session's schedule; on POST save or delete it. A script then gets 204, or the form."""
    found = find_session(request, session_id)
    current: StopSchedule | None = getattr(found, "stop_schedule", None)
    initial: dict[str, Any] = model_to_dict(current) if current else {"time_zone": settings.TIME_ZONE}
    form = ScheduleForm(request.POST or None, initial=initial)
    if current is None and not form.is_bound:
        form.fields["time_zone"].widget.attrs["data-own-zone"] = True
    is_deleted = request.method == "POST" and "delete" in request.POST
    if is_deleted or (request.method == "POST" and form.is_valid()):
        try:
            if is_deleted:
                delete_schedule(request.user, found)
            else:
                set_schedule(request.user, found, DailyTimes(**form.cleaned_data), now=timezone.now())
        except UserError as error:
            form.add_error(error.field, in_words(error.message))
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            messages.success(request, _("The schedule is deleted.") if is_deleted else _("The schedule is saved."))
            return redirect("web:session", session_id=session_id)
    return box(request, found, "web/_session_schedule.html", {"form": form, "current": current})


@signed_in("POST")
def stop_many(request: PageRequest) -> HttpResponse:
    """Begin to stop the running ones of the selected sessions, and name those that cannot be stopped."""
    ids = ids_in(request.POST.getlist("session")[:MOST_ENDED])
    stopped = 0
    rows = ComputeSession.objects.visible_to(request.user).running().filter(pk__in=ids).select_related("owner")
    for one in rows.order_by("name", "pk"):
        try:
            stop_session(request.user, one, now=timezone.now())
            stopped += 1
        except UserError as error:
            messages.error(request, f"{one.name}: {in_words(error.message)}")
    if stopped:
        text = ngettext("%(number)s session is being stopped.", "%(number)s sessions are being stopped.", stopped)
        messages.success(request, text % {"number": stopped})
    return redirect(way_back(request))


@signed_in("GET", "POST")
def resume(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Tell what a resumed session starts with; on POST queue it, or let one go on that is being stopped."""
    found = find_session(request, session_id)
    mistake = ""
    if request.method == "POST":
        try:
            resume_session(request.user, found, now=timezone.now())
        except UserError as error:
            mistake = in_words(error.message)
        else:
            return HttpResponse(status=204) if asks_for_part(request) else redirect("web:session", session_id)
    return box(request, found, "web/_session_resume.html", {"mistake": mistake})
