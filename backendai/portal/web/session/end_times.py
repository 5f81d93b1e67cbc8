"""Moves the end of a running session."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.end_times import latest_end, set_end
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session

_LATER = {
    "1h": (timedelta(hours=1), _l("1 hour later")),
    "4h": (timedelta(hours=4), _l("4 hours later")),
    "1d": (timedelta(days=1), _l("1 day later")),
}
_LATEST, _REMAINING, _NO_LIMIT = "latest", "remaining", "no-limit"


class EndTimeForm(forms.Form):
    """The choice of a session's new end, of which only allowed ones are shown."""

    end = forms.ChoiceField(label=_l("New end"), widget=forms.RadioSelect)
    remaining = TimeSpanField(
        required=False,
        label=_l("Remaining time"),
        help_text=_l("Counted from now on."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": _l("such as 30m, 2h, 7d")}),
    )

    def __init__(self, data: Any, session: ComputeSession, latest: datetime | None, now: datetime) -> None:
        super().__init__(data)
        self.latest, self.now = latest, now
        self.later: dict[str, datetime] = {}
        if session.ends_at:
            begin = max(session.ends_at, now)
            ends = {key: begin + span for key, (span, _label) in _LATER.items()}
            self.later = {key: end for key, end in ends.items() if latest is None or end <= latest}
        choices: list[tuple[str, Any]] = [(key, _LATER[key][1]) for key in self.later]
        if latest is not None and session.ends_at and latest > session.ends_at:
            choices.append((_LATEST, _("The latest allowed end")))
        if latest is None and session.ends_at:
            choices.append((_NO_LIMIT, _("No limit")))
        choices.append((_REMAINING, _("After the remaining time below")))
        field: Any = self.fields["end"]
        field.choices, field.initial = choices, choices[0][0]

    def clean(self) -> dict[str, Any] | None:
        """Reject a missing remaining time, and one that the choice would ignore."""
        data = super().clean() or {}
        chosen, remaining = data.get("end"), data.get("remaining")
        if chosen == _REMAINING and remaining is None and "remaining" not in self.errors:
            self.add_error("remaining", _("Enter the remaining time, such as 30m, 2h or 7d."))
        if chosen and chosen != _REMAINING and remaining is not None:
            self.add_error("remaining", _("Choose this time above, or clear the box."))
        return data

    def until(self) -> datetime | None:
        """Return the chosen end; None for no limit."""
        chosen = self.cleaned_data["end"]
        if chosen == _NO_LIMIT:
            return None
        if chosen == _LATEST:
            return self.latest
        return self.later[chosen] if chosen in self.later else self.now + self.cleaned_data["remaining"]


@signed_in("GET", "POST")
def end_time(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the form for a new end; on POST move the end. A script then gets 204, or the form with its error."""
    found, now = find_session(request, session_id), timezone.now()
    latest = latest_end(found, request.user)
    form = EndTimeForm(request.POST if request.method == "POST" else None, found, latest, now)
    if request.method == "POST" and form.is_valid():
        try:
            set_end(found, request.user, form.until(), now=now)
        except UserError as error:
            at_its_field = error.field and form.cleaned_data["end"] == _REMAINING
            form.add_error("remaining" if at_its_field else None, in_words(error.message))
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            messages.success(request, _("The end is moved."))
            return redirect("web:session", session_id=session_id)
    return box(request, found, "web/_session_end_time.html", {"form": form, "latest": latest})
