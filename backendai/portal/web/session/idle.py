"""The texts of idle checkers: on a session's panel, and for a launch before there is a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.utils.html import format_html

from backendai.base.core.messages import MessageTemplate
from backendai.base.core.slots import Slots
from backendai.base.db.per_request import once
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.domain.cluster.idle.checkers import read_holding
from backendai.domain.cluster.models import IdleChecker
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.planning.idle.checks import IdleCheck, checks_of
from backendai.portal.web.dashboard.resources import name_of_slot
from backendai.portal.web.templatetags.portal import ago, exact
from backendai.scheduler.idle_kinds import IDLE_KINDS

_NEAR = 2  # times the threshold: so near to it, the figure is coloured
_LAST_PART = 4  # of the time between warning and end: in so much of it, the end is red


@dataclass(frozen=True, slots=True)
class Figure:
    """The usage of one slot beside its threshold. ``tone``: bad below the threshold, wait near it."""

    label: str
    percent: str
    threshold: str
    tone: str


@dataclass(frozen=True, slots=True)
class IdleLine:
    """One idle checker on the panel.

    ``help`` explains the checker. ``ends``: when it ends the session. ``why_not``: why it does not apply at present.
    ``tone``: wait from the warning on, bad shortly before the end. ``hint``: its tooltip with the usage.
    """

    check: IdleCheck
    title: str
    help: str
    ends: str
    why_not: str
    figures: list[Figure]
    longer: str
    tone: str

    @property
    def hint(self) -> str:
        """The usage of each slot with its threshold, in one line."""
        return " · ".join(f"{one.label} {one.percent} / {one.threshold}" for one in self.figures)


def idle_lines(session: ComputeSession, *, now: datetime) -> list[IdleLine]:
    """Return the results of the idle checkers for a running session, the earliest end first.

    A fixed number of queries.
    """
    return [_line(check) for check in checks_of(session, now=now)]


def rules_to_come(session: ComputeSession) -> list[str]:
    """Return the rules of the idle checkers that will apply once the session runs. Two queries."""
    if session.is_terminal or session.status in (Status.RUNNING, Status.TERMINATING):
        return []
    return launch_rules(session.session_type, session.resource_group_id, session.project_id, session.total)


def launch_rules(session_type: str, group_id: int, project_id: UUID, slots: Slots | None = None) -> list[str]:
    """Return the rules of the idle checkers for sessions of this type there, one sentence each. Two queries.

    With ``slots``, the amounts of such a session, rules about the use of others are left out.
    """
    found = _checkers_for(session_type, group_id, project_id)
    return [rule_text(one) for one in found if slots is None or not one.thresholds or slots.keys() & one.thresholds]


def short_rules(session_type: str, group_id: int, project_id: UUID) -> str:
    """Return in one line when idle checkers end sessions of this type there.

    The shortest limit is first; empty if no checker applies. Two queries.
    """
    found = sorted(_checkers_for(session_type, group_id, project_id), key=lambda checker: checker.limit)
    return _("Session ends %(rules)s") % {"rules": " · ".join(map(_short, found))} if found else ""


def rule_text(checker: IdleChecker) -> str:
    """Return the rule of an idle checker in a sentence."""
    kind = IDLE_KINDS[checker.kind]
    text = _about(checker, (checker.thresholds and kind.sentence_with_thresholds) or kind.sentence)
    return _("%(text)s The owner is warned %(lead)s before.") % {"text": text, "lead": short_duration(checker.warning)}


def _checkers_for(session_type: str, group_id: int, project_id: UUID) -> list[IdleChecker]:
    return once("idle checkers", read_holding).checkers_for(session_type, group_id, project_id)


def _short(checker: IdleChecker) -> str:
    return _about(checker, IDLE_KINDS[checker.kind].short)


def _about(checker: IdleChecker, template: MessageTemplate) -> str:
    values = {"limit": short_duration(checker.limit), "least": _thresholds(checker.thresholds.items())}
    return in_words(template.filled(values))


def _line(check: IdleCheck) -> IdleLine:
    return IdleLine(
        check,
        in_words(check.finding.rule.kind.label),
        _help(check),
        _ends(check),
        _why_not(check),
        _figures(check),
        _clock(check.extension_seconds),
        _tone(check),
    )


def _tone(check: IdleCheck) -> str:
    if check.warned_at is None or check.remaining_seconds is None:
        return ""
    return "bad" if check.remaining_seconds * _LAST_PART <= check.warning_seconds else "wait"


def _ends(check: IdleCheck) -> str:
    return format_html(
        in_words(check.finding.rule.kind.ends), when=ago(check.finding.due_at), at=exact(check.finding.due_at)
    )


def _help(check: IdleCheck) -> str:
    kind = check.finding.rule.kind
    values = {
        "limit": _clock(check.limit_seconds),
        "lead": _clock(check.warning_seconds),
        "grace": _clock(check.grace_seconds),
        "least": _thresholds(check.threshold_percent.items()),
    }
    parts = [kind.help, kind.help_with_thresholds if check.threshold_percent else kind.help_without_thresholds]
    texts = [in_words(one.filled(values)) for one in parts if one]
    if check.grace_seconds:
        texts.append(_("No session ends within %(grace)s of its start.") % values)
    return " ".join([*texts, _("The owner is warned %(lead)s before the end.") % values])


def _why_not(check: IdleCheck) -> str:
    if check.finding.code == "in-use" and check.finding.due_at is None:
        return in_words(check.finding.rule.kind.in_use)
    texts = {
        "not-reachable": _("The agent does not answer, so activity is not known; the session does not count as idle."),
        "traffic-unknown": _("Usage is counted from now on."),
        "not-measured": _("Too little was measured, so the session does not count as idle."),
        "nothing-to-measure": _("The session has none of the resources whose use is checked, so it is not ended."),
        "grace": _("This check has not started yet."),
    }
    return texts.get(check.finding.code, "")


def _figures(check: IdleCheck) -> list[Figure]:
    found = []
    for slot, threshold in check.threshold_percent.items():
        percent = check.measured_percent.get(slot)
        tone = ""
        if percent is not None:
            tone = "bad" if percent < threshold else "wait" if percent < threshold * _NEAR else ""
        shown = f"{percent:.3g} %" if percent is not None else "–"
        found.append(Figure(name_of_slot(slot), shown, f"{threshold:g} %", tone))
    return found


def _thresholds(pairs: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name_of_slot(slot)} {percent:g} %" for slot, percent in sorted(pairs))


def _clock(seconds: int) -> str:
    return short_duration(timedelta(seconds=seconds))
