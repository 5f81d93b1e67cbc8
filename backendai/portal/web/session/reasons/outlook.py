"""Shows the result of the next scheduler pass for a session: start or wait, sessions ahead, and changes that help."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django.utils.translation import gettext_noop as _noop

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.requests.check import Checked
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.launches import forecast_launch
from backendai.domain.forecasts.models import StartForecast
from backendai.domain.planning.explain import Explanation, SessionAhead, Verdict, explain
from backendai.domain.planning.preview import preview
from backendai.domain.planning.pulls import PullFirst
from backendai.domain.planning.turns import Busy, turn_of
from backendai.portal.web.dashboard.images import Build, builds_of, percent_of
from backendai.portal.web.launch.fields.allocation_fields import CUSTOM, initial_amounts
from backendai.portal.web.launch.fields.presets import typed_amounts
from backendai.portal.web.launch.form import LaunchForm
from backendai.scheduler.explaining.suggest import Suggestion
from backendai.scheduler.plan import Reason, Step
from backendai.scheduler.progress import LACKS_ROOM
from backendai.scheduler.runs.snapshot import UNPLACED_PER_STEP

_MOST_NAMED = 8
_NONE_FOUND = _noop("No other size or resource group would let the session start now.")
_NO_CHANGE = {
    "start-time-not-reached": _noop("Until its start time, other amounts do not help."),
    "dependency-not-finished": _noop("Until the sessions that it waits for have ended, other amounts do not help."),
    "image-building": _noop("Until its image is available, other amounts do not help."),
    "image-build-failed": _noop("Until its image is available, other amounts do not help."),
}
_STARTS_WHEN = {
    **dict.fromkeys((*LACKS_ROOM, "behind-in-queue"), _noop("The session starts as soon as resources are free.")),
    **dict.fromkeys(
        ("slot-limit", "too-many-sessions"),
        _noop("The session starts when others that count against the limit have ended."),
    ),
    "agent-draining": _noop("A drained agent takes no new sessions until an administrator cancels the drain."),
    "no-agent-schedulable": _noop("A paused agent takes no new sessions until an administrator resumes it."),
    "no-agent-alive": _noop("The session starts when an agent is reachable again."),
    "agent-fault": _noop("The session starts when the fault of an agent is repaired."),
}
_NO_PASS = frozenset({"wrong-group-rules", "scheduler-error"})  # a pass over the group fails: there is none to foresee


@dataclass(frozen=True, slots=True)
class Change:
    """A change with which the session starts now, with the values of the form's fields."""

    message: str
    group: str  # empty: it stays where it is
    fields: dict[str, str]

    @property
    def typed(self) -> str:
        """The values of the fields as JSON."""
        return json.dumps(self.fields)

    @property
    def query(self) -> str:
        """The values of the fields as a query string."""
        return urlencode(self.fields)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The result of the next pass for a session: it ``starts``, waits, or can ``never`` start without changes.

    ``ahead``: a few visible sessions before it; ``others``: the number of the rest. ``pull``: the agents that pull its
    image first; ``build``: the unfinished build of its image, without which it starts as a native process.
    ``forecast``: when it would probably start, before there is a session.
    """

    starts: bool
    never: bool
    message: str
    agents: tuple[str, ...]
    ahead: tuple[SessionAhead, ...]
    others: int
    steps: tuple[Step, ...]
    changes: tuple[Change, ...]
    code: str = ""
    started: int = 0  # of several that are asked for at once
    count: int = 1
    pull: PullFirst | None = None
    build: Build | None = None
    forecast: StartForecast | None = None

    @property
    def pulled_percent(self) -> int | None:
        """How much of its image the agents have, from 0 to 100; None if it is unknown."""
        return percent_of(self.pull.progress) if self.pull else None

    @property
    def starts_all(self) -> bool:
        """Whether nothing is asked for beside what starts; of a large array only the first elements are foreseen."""
        return self.started >= self.count

    @property
    def no_change(self) -> str:
        """The text that no change would start the session now."""
        return _(_NO_CHANGE.get(self.code, _NONE_FOUND))

    @property
    def starts_when(self) -> str:
        """What ends the wait; empty if only the message says it."""
        return _(_STARTS_WHEN[self.code]) if self.code in _STARTS_WHEN else ""

    @property
    def lacks_room(self) -> bool:
        """Whether it waits for what other sessions hold."""
        return self.code in LACKS_ROOM or self.code == "behind-in-queue"

    @property
    def ahead_total(self) -> int:
        """The number of sessions ahead."""
        return len(self.ahead) + self.others

    @property
    def verdict(self) -> str:
        """The result in a few words, shown before ``why``."""
        if self.never:
            return _("Can never start:")
        if self.started:
            return _("%(started)s of %(count)s start now. The next one waits:") % {
                "started": self.started,
                "count": self.count,
            }
        return _("Waits:")

    @property
    def why(self) -> str:
        """The reason, shown after ``verdict``."""
        return in_words(self.message)

    @property
    def tone(self) -> str:
        """The tone of the text's colour."""
        if self.starts:
            return "wait" if self.pull else "good"
        return "bad" if self.never else "wait"


def outlook_of(session: ComputeSession, user: User, *, now: datetime) -> Outlook | None:
    """Return the result of the next pass for a visible session; None if it is not pending."""
    if session.status != Status.PENDING:
        return None
    if session.status_reason in _NO_PASS:
        return _outlook(_as_stored(session, now))
    try:
        with turn_of(user.pk):
            return _outlook(explain(session, user, now=now))
    except Busy:
        return _outlook(_as_stored(session, now))


def outlook_of_form(user: User, form: LaunchForm, checked: Checked, *, now: datetime) -> Outlook:
    """Return the result of the next pass for the ``checked`` session of a form. Raises Busy."""
    with turn_of(user.pk):
        return _of_form(user, form, checked, now)


def _of_form(user: User, form: LaunchForm, checked: Checked, now: datetime) -> Outlook:
    spec = form.spec()
    count = form.elements() or form.how_many()
    # Of an array no more elements wait for an agent at once.
    copies = min(count, UNPLACED_PER_STEP) if form.elements() else count
    found = preview(user, spec, now=now, copies=copies, checked=checked)
    replaced: ComputeSession | None = form.cleaned_data["replaces"]
    if replaced and replaced.status == Status.PENDING and found.verdict == Verdict.WAITS:
        return _in_place_of(replaced, user, spec, now) or _outlook(found)
    outlook = replace(_outlook(found), count=count)
    if not outlook.starts:
        return _with_forecast(outlook, found, checked.image.minimum_slots if copies == 1 else None)
    builds = builds_of({role.image.pk: role.image for role in checked.roles}.values())
    return replace(outlook, build=next((build for build in builds if build.is_native), None))


def _with_forecast(outlook: Outlook, found: Explanation, least: Slots | None) -> Outlook:
    """Return the result with the forecast of its start, and a change that would let it start earlier if none would let
    it start now."""
    forecast = forecast_launch(found, least=None if outlook.changes else least)
    if forecast is None:
        return outlook
    changes = (_change(forecast.smaller, found.group),) if forecast.smaller else outlook.changes
    return replace(outlook, forecast=forecast.start, changes=changes)


def _in_place_of(replaced: ComputeSession, user: User, spec: SessionSpec, now: datetime) -> Outlook | None:
    """Return the result for a session that replaces a waiting one with a suggested change.

    None unless that suggestion was checked. The preview itself would still count the old session as ahead of the new
    one.
    """
    same = (replaced.image.name, replaced.cluster_size) == (spec.image, spec.cluster_size)
    if not same or spec.preset or spec.starts_at or spec.depends_on:
        return None
    try:
        found, wanted = explain(replaced, user, now=now), Slots.parse(spec.resources)
    except (UserError, ValueError):
        return None
    for each in found.suggestions:
        if each.group == spec.resource_group and (each.resources or replaced.kernel_slots) == wanted:
            return replace(_outlook(found), starts=True, agents=each.agents, changes=(), ahead=(), others=0)
    return None


def _as_stored(session: ComputeSession, now: datetime) -> Explanation:
    reason = Reason(session.status_reason, session.reason_text, dict(session.status_data))
    return Explanation(now, session.resource_group.name, Verdict.WAITS, session.reason_text, reason)


def _outlook(found: Explanation) -> Outlook:
    named = found.ahead[:_MOST_NAMED]
    return Outlook(
        starts=found.verdict == Verdict.STARTS_NOW,
        never=found.verdict == Verdict.NEVER or bool(found.reason and found.reason.details.get("never")),
        message=found.message,
        agents=found.agents,
        ahead=named,
        others=found.ahead_total - len(named),
        steps=found.steps,
        changes=tuple(_change(each, found.group) for each in found.suggestions),
        code=found.reason.code if found.reason else "",
        started=found.started,
        pull=found.pull,
    )


def _change(suggestion: Suggestion, group: str) -> Change:
    fields: dict[str, str] = {}
    moved = suggestion.group != group
    if moved:
        fields["resource_group"] = suggestion.group
    if suggestion.resources is not None:
        fields |= {"preset": CUSTOM, **initial_amounts(typed_amounts(suggestion.resources))}
    return Change(in_words(suggestion.message), suggestion.group if moved else "", fields)
