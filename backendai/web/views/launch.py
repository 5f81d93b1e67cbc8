"""The launch form."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from backendai.compute.services.create import create_session
from backendai.compute.status import SessionType
from backendai.core.errors import UserError
from backendai.web.forms import LaunchForm
from backendai.web.requests import PageRequest
from backendai.web.resources import rooms_for


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def launch(request: PageRequest) -> HttpResponse:
    """Show the form; on POST create the session and go to where its output will appear."""
    rooms = rooms_for(request.user)
    slots = {bar.slot for room in rooms for bar in room.bars}
    initial = {
        "request_key": uuid.uuid4().hex,
        "image": request.GET.get("image") or LaunchForm.first_image(request.user),
    }
    form = LaunchForm(request.POST or None, user=request.user, slots=slots, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            key = form.cleaned_data["request_key"] or None
            created = create_session(request.user, form.spec(), idempotency_key=key)
        except UserError as error:
            form.refuse(error)
        else:
            part = "log" if created.session_type == SessionType.BATCH else "terminal"
            return redirect(f"{reverse('web:session', args=[created.pk])}#{part}")
    status = 422 if form.is_bound else 200
    context = {"section": "sessions", "form": form, "rooms": rooms}
    return render(request, "web/launch.html", context, status=status)
