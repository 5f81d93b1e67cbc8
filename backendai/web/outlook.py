"""What would become of a session, in the words of a page: does it start, who is ahead, what would start it now."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from backendai.accounts.models import User
from backendai.compute.models import ComputeSession
from backendai.compute.status import SessionType, Status
from backendai.core.errors import UserError
from backendai.planning.explain import Ahead, Explanation, Verdict, explain
from backendai.planning.preview import preview
from backendai.scheduler.plan import Reason, Step
from backendai.scheduler.suggest import Suggestion
from backendai.web.launch_form import CUSTOM, LaunchForm, initial_amounts
from backendai.web.presets import typed_amounts

_MOST_NAMED = 8
_WAITS = "Waits "
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

    @property
    def ahead_total(self) -> int:
        """How many come first."""
        return len(self.ahead) + self.others

    @property
    def verdict(self) -> str:
        """What happens in two words, to stand before ``why``; reasons that begin with them are not told twice."""
        if self.never:
            return "Can never start:"
        return "Waits" if self.message.startswith(_WAITS) else "Waits:"

    @property
    def why(self) -> str:
        """The reason, after ``verdict``."""
        return self.message if self.never else self.message.removeprefix(_WAITS)

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
        return _outlook(explain(session, user, now=now))
    except ValueError:  # somebody has just given the group rules that cannot be followed
        return _outlook(_as_stored(session, now))


def outlook_of_form(user: User, form: LaunchForm, *, now: datetime) -> Outlook | None:
    """Return what would become of the session that a valid form asks for; None when the launch would be refused."""
    spec = form.spec()
    if spec.session_type == SessionType.BATCH and not spec.startup_command:
        spec = replace(spec, startup_command="true")  # not typed yet, and nothing here depends on it
    try:
        return _outlook(preview(user, spec, now=now))
    except (UserError, ValueError):
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
    )


def _change(suggestion: Suggestion, group: str) -> Change:
    fields: dict[str, str] = {}
    moved = suggestion.group != group
    if moved:
        fields["resource_group"] = suggestion.group
    if suggestion.resources is not None:
        fields |= {"preset": CUSTOM, **initial_amounts(typed_amounts(suggestion.resources))}
    return Change(suggestion.message, suggestion.group if moved else "", fields)
