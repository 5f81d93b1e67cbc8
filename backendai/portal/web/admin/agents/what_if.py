"""What if: the sessions of the last days under other rules or with more agents, beside what the group's rules do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.core.slots import slot_in_words
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.cluster.groups.rules import SEQUENCE, strategies
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.forecasts.what_if import COLUMNS, MOST_DAYS, WHAT_IF_JOB, start_what_if
from backendai.domain.forecasts.what_if import WhatIf as Wanted
from backendai.portal.web.admin.editing import FormPage, RowPage
from backendai.portal.web.admin.forms import GroupedFields, say_in_words
from backendai.portal.web.frame.jobs import percent_of
from backendai.portal.web.frame.time_words import clock

_HEIGHT, _MOST_LISTED = 100, 20
_AS_IN_GROUP = _l("As in the group")


class WhatIfForm(GroupedFields, forms.Form):
    """What to try."""

    group = forms.ModelChoiceField(ResourceGroup.objects.none(), label=_l("Resource group"), empty_label=None)
    days = forms.IntegerField(
        label=_l("Sessions of the last days"), min_value=1, max_value=MOST_DAYS, initial=7,
        help_text=_l("Sessions that have ended. At most the newest 20,000."),
    )  # fmt: skip
    sequence = forms.ChoiceField(label=_l("Which session starts next"), required=False)
    backfill = forms.ChoiceField(
        label=_l("Backfill"), required=False, choices=(("", _AS_IN_GROUP), ("on", _l("On")), ("off", _l("Off"))),
        help_text=_l("Sessions may pass the first in line if they do not delay it. Off: only as the sequence allows."),
    )  # fmt: skip
    added = forms.CharField(
        label=_l("Additional agents"), required=False, max_length=200,
        widget=forms.TextInput(attrs={"placeholder": "2 x cpu=32,mem=128g,cuda.device=8"}),
        help_text=_l("Their number and the amounts of each. Empty: none. Numbers up to 1,000."),
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        group: Any = self.fields["group"]
        group.queryset = ResourceGroup.objects.order_by("name")
        sequence: Any = self.fields["sequence"]
        named = [(name, f"{name}: {in_words(view.label)}") for name, view in strategies(SEQUENCE).items()]
        sequence.choices = [("", _AS_IN_GROUP), *named]
        say_in_words(self)

    def wanted(self) -> Wanted:
        """Return the typed values; what is left empty is as in the group."""
        values, group = self.cleaned_data, self.cleaned_data["group"]
        backfill = {"on": True, "off": False}.get(values["backfill"], group.backfill)
        return Wanted(values["days"], values["sequence"] or group.sequence, backfill, values["added"])


@dataclass(frozen=True, slots=True)
class Plot:
    """Two lines over time. ``points``: of each line, for SVG; ``columns``: of each its position and its sentence."""

    name: str
    most: str
    points: tuple[str, ...]
    columns: tuple[tuple[int, str], ...]


class WhatIfResult(RowPage):
    """The progress or the result of one request."""

    section = "what-if"
    title = _l("What if")
    model = BackgroundJob
    list_address = "manage:what-if"
    row_address = "manage:what-if-result"
    template_name = "web/panel/what_if_result.html"

    def get_queryset(self) -> QuerySet[BackgroundJob]:
        """Return the replays that this user may see."""
        return BackgroundJob.objects.visible_to(self.viewer).filter(kind=WHAT_IF_JOB)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.object = self.find()
        return self.render_to_response(self.get_context_data())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Cancel the replay."""
        self.object = self.find()
        try:
            cancel_job(self.viewer, self.object.pk, now=timezone.now())
        except UserError as error:
            messages.error(request, in_words(error.message))
        return redirect(self.address_of(self.object))

    def page_context(self) -> dict[str, Any]:
        """Return the result, if there is one."""
        job: BackgroundJob = self.object
        context: dict[str, Any] = {"job": job, "what": job.result.get("what", {}), "percent": percent_of(job)}
        if "lines" not in job.result:
            return context
        found = job.result
        return context | {
            "sides": [_rules(*each) for each in found["rules"]],
            "figures": list(_rows(*found["figures"])),
            "plots": list(_plots(found)),
            "moved": self._moved(found["moved"]),
            "height": _HEIGHT,
            "width": COLUMNS,
        }

    def _moved(self, rows: Sequence[Any]) -> list[tuple[str, str, str, str, str, bool]]:
        """Return id, name, owner and both waits of the sessions, and whether each gains."""
        named = ComputeSession.objects.visible_to(self.viewer).in_bulk([UUID(pk) for pk, *_rest in rows])
        return [
            (pk, named[UUID(pk)].name, owner, clock(before), clock(after), after < before)
            for pk, owner, before, after in rows
            if UUID(pk) in named
        ]


class WhatIf(FormPage):
    """The request, and earlier ones."""

    section = "what-if"
    title = _l("What if")
    icon = "flask"
    guide = "what-if"
    template_name = "web/panel/what_if.html"
    form_class = WhatIfForm
    model = BackgroundJob
    is_atomic = False
    list_address = "manage:what-if"
    row_address = "manage:what-if-result"
    submit_label = _l("Replay sessions")
    lead = _l("Replays ended sessions under other rules or with more agents, beside the rules of the group.")
    more = (path("what-if/<uuid:pk>/", WhatIfResult.as_view(), name="what-if-result"),)

    def make_form(self, data: Any = None) -> WhatIfForm:
        return WhatIfForm(data)

    def save(self, form: WhatIfForm) -> BackgroundJob:
        """Start the replay."""
        return start_what_if(self.viewer, form.cleaned_data["group"], form.wanted(), now=timezone.now())

    def success_text(self, saved: Any) -> str:
        return _("The replay has started.")

    def page_context(self) -> dict[str, Any]:
        """Return the newest replays."""
        jobs = BackgroundJob.objects.filter(kind=WHAT_IF_JOB).select_related("owner")
        return {"jobs": [(job, percent_of(job)) for job in jobs.order_by("-created_at")[:_MOST_LISTED]]}


def _rules(sequence: str, backfill: bool) -> str:
    return _("%(sequence)s with backfill") % {"sequence": sequence} if backfill else sequence


def _rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, label in (("p50", _("Median wait")), ("p95", _("Wait, 95th percentile")), ("longest", _("Longest wait"))):
        yield label, clock(before[name]), clock(after[name])
    for slot in before["used"] | after["used"]:
        one, other = (f"{each['used'].get(slot, 0):.0%}" for each in (before, after))
        yield _("Use of %(slot)s") % {"slot": in_words(slot_in_words(slot))}, one, other
    yield _("Fairness (1: all users wait alike)"), f"{before['fairness']:.2f}", f"{after['fairness']:.2f}"
    yield _("Sessions that never start"), str(before["never"]), str(after["never"])


def _plots(found: Mapping[str, Any]) -> Iterator[Plot]:
    begin, width = datetime.fromisoformat(found["begin"]), timedelta(seconds=found["seconds"])
    times = [f"{timezone.localtime(begin + width * place):%m-%d %H:%M}" for place in range(COLUMNS)]
    waits, uses = ([[part[at] for part in line] for line in found["lines"]] for at in (0, 1))
    used = _("Use of %(slot)s") % {"slot": in_words(slot_in_words(found["slot"]))}
    yield _plot(_("Mean wait by time of launch"), times, waits, lambda value: clock(round(value)))
    yield _plot(used, times, uses, lambda value: f"{value:.0%}")


def _plot(name: str, times: Sequence[str], lines: Sequence[Sequence[float | None]], words: Any) -> Plot:
    most = max((value for line in lines for value in line if value is not None), default=0)
    points = tuple(
        " ".join(
            f"{place + 0.5},{_HEIGHT - _HEIGHT * value / (most or 1):.1f}"
            for place, value in enumerate(line)
            if value is not None
        )
        for line in lines
    )
    said = _("%(at)s: %(before)s as it is, %(after)s what if")
    before, after = (["–" if value is None else words(value) for value in line] for line in lines)
    columns = tuple(
        (place, said % {"at": at, "before": before[place], "after": after[place]}) for place, at in enumerate(times)
    )
    return Plot(name, words(most), points, columns)
