"""What would become of a session, in the words of a page: does it start, who is ahead, what would start it now."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django.utils.translation import gettext_noop as _noop

from backendai.accounts.models import User
from backendai.compute.models import ComputeSession
from backendai.compute.services.check import Checked
from backendai.compute.spec import SessionSpec
from backendai.compute.status import Status
from backendai.core.errors import UserError
from backendai.core.slots import Slots
from backendai.planning.explain import Ahead, Explanation, Verdict, explain
from backendai.planning.preview import preview
from backendai.planning.turns import Busy, turn_of
from backendai.scheduler.plan import Reason, Step
from backendai.scheduler.suggest import Suggestion
from backendai.texts.messages import in_words
from backendai.texts.translation import gettext as _
from backendai.web.launcher.allocation_fields import CUSTOM, initial_amounts
from backendai.web.launcher.form import LaunchForm
from backendai.web.launcher.presets import typed_amounts

_MOST_NAMED = 8
_NONE_FOUND = _noop("No other size or resource group would let the session start now.")
_NO_CHANGE = {
    "start-time-not-reached": _noop("Until its start time, other amounts do not help."),
    "dependency-not-finished": _noop("Until the sessions that it depends on succeed, other amounts do not help."),
    "image-building": _noop("Until its image is available, other amounts do not help."),
    "image-build-failed": _noop("Until its image is available, other amounts do not help."),
}
_NO_PASS = frozenset({"wrong-group-rules", "scheduler-error"})  # a pass over the group fails: there is none to foresee


@dataclass(frozen=True, slots=True)
class Change:
    """A change with which the session starts now, and the form's fields that it fills."""

    message: str
    group: str  # empty: it stays where it is
    fields: dict[str, str]

    @property
    def typed(self) -> str:
        """The fields as JSON."""
        return json.dumps(self.fields)

    @property
    def query(self) -> str:
        """The fields as a query string."""
        return urlencode(self.fields)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the next pass does with a session: ``starts``, or it waits, or it is ``never`` to start as things stand.

    ``ahead`` are those in front that the reader may see, a few at most, and ``others`` counts the rest.
    """

    starts: bool
    never: bool
    message: str
    agents: tuple[str, ...]
    ahead: tuple[Ahead, ...]
    others: int
    steps: tuple[Step, ...]
    changes: tuple[Change, ...]
    code: str = ""
    started: int = 0  # of several that are asked for at once
    count: int = 1

    @property
    def no_change(self) -> str:
        """What there is to say when no change would start it now."""
        return _(_NO_CHANGE.get(self.code, _NONE_FOUND))

    @property
    def ahead_total(self) -> int:
        """How many come first."""
        return len(self.ahead) + self.others

    @property
    def verdict(self) -> str:
        """What happens in two words, to stand before ``why``."""
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
        """The reason, after ``verdict``."""
        return in_words(self.message)

    @property
    def tone(self) -> str:
        """The tone of its colour, beside the words."""
        return "good" if self.starts else "bad" if self.never else "wait"


def outlook_of(session: ComputeSession, user: User, *, now: datetime) -> Outlook | None:
    """Return what would become of a session that the user may see; None when it does not wait."""
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
    """Return what would become of the session that a form asks for which was ``checked``; raises Busy."""
    with turn_of(user.pk):
        return _of_form(user, form, checked, now)


def _of_form(user: User, form: LaunchForm, checked: Checked, now: datetime) -> Outlook:
    spec = form.spec()
    count = form.how_many()
    found = preview(user, spec, now=now, copies=count, checked=checked)
    replaced: ComputeSession | None = form.cleaned_data["replaces"]
    if replaced and replaced.status == Status.PENDING and found.verdict == Verdict.WAITS:
        return _in_place_of(replaced, user, spec, now) or _outlook(found)
    return replace(_outlook(found), count=count)


def _in_place_of(replaced: ComputeSession, user: User, spec: SessionSpec, now: datetime) -> Outlook | None:
    """Return where the new session starts when it takes the place of one that waits and is asked for just as was
    suggested for that one; None when nobody has tried that. The preview still has the old one ahead of the new."""
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
    )


def _change(suggestion: Suggestion, group: str) -> Change:
    fields: dict[str, str] = {}
    moved = suggestion.group != group
    if moved:
        fields["resource_group"] = suggestion.group
    if suggestion.resources is not None:
        fields |= {"preset": CUSTOM, **initial_amounts(typed_amounts(suggestion.resources))}
    return Change(in_words(suggestion.message), suggestion.group if moved else "", fields)
