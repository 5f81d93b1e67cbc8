"""The texts of idle checkers: on a session's panel, and for a launch before there is a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

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

    ``why_not``: why it does not apply at present; ``help`` explains the checker. ``tone``: wait from the warning on,
    bad shortly before the end. ``hint``: its tooltip with the usage.
    """

    check: IdleCheck
    title: str
    help: str
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
    return launch_rules(session.session_type, session.resource_group_id, session.project_id)


def launch_rules(session_type: str, group_id: int, project_id: UUID) -> list[str]:
    """Return the rules of the idle checkers for sessions of this type there, one sentence each. Two queries."""
    return [rule_text(checker) for checker in _checkers_for(session_type, group_id, project_id)]


def short_rules(session_type: str, group_id: int, project_id: UUID) -> str:
    """Return in one line when idle checkers end sessions of this type there.

    The shortest limit is first; empty if no checker applies. Two queries.
    """
    found = sorted(_checkers_for(session_type, group_id, project_id), key=lambda checker: checker.limit)
    return _("Session ends %(rules)s") % {"rules": " · ".join(map(_short, found))} if found else ""


def rule_text(checker: IdleChecker) -> str:
    """Return the rule of an idle checker in a sentence."""
    limit, lead = short_duration(checker.limit), short_duration(checker.warning)
    if checker.kind == IdleChecker.Kind.LIFETIME:
        text = _("Ends after %(limit)s in any case.") % {"limit": limit}
    elif checker.kind == IdleChecker.Kind.UTILIZATION:
        least = _thresholds(checker.thresholds.items())
        text = _("Ends when the session has used less than %(least)s on average for %(limit)s.") % {
            "least": least, "limit": limit,
        }  # fmt: skip
    elif checker.thresholds:
        least = _thresholds(checker.thresholds.items())
        text = _("Ends after %(limit)s without traffic, unless the session uses %(least)s or more.") % {
            "least": least, "limit": limit,
        }  # fmt: skip
    else:
        text = _("Ends after %(limit)s without traffic.") % {"limit": limit}
    return _("%(text)s The owner is warned %(lead)s before.") % {"text": text, "lead": lead}


def _checkers_for(session_type: str, group_id: int, project_id: UUID) -> list[IdleChecker]:
    return once("idle checkers", read_holding).checkers_for(session_type, group_id, project_id)


def _short(checker: IdleChecker) -> str:
    limit = short_duration(checker.limit)
    if checker.kind == IdleChecker.Kind.LIFETIME:
        return _("after %(limit)s in any case") % {"limit": limit}
    if checker.kind == IdleChecker.Kind.UTILIZATION:
        return _("after %(limit)s below %(least)s") % {"limit": limit, "least": _thresholds(checker.thresholds.items())}
    return _("after %(limit)s without activity") % {"limit": limit}


def _line(check: IdleCheck) -> IdleLine:
    return IdleLine(
        check,
        in_words(IdleChecker.Kind(check.kind).label),
        _help(check),
        _why_not(check),
        _figures(check),
        _clock(check.extension_seconds),
        _tone(check),
    )


def _tone(check: IdleCheck) -> str:
    if not check.is_near or check.remaining_seconds is None:
        return ""
    return "bad" if check.remaining_seconds * _LAST_PART <= check.warning_seconds else "wait"


def _help(check: IdleCheck) -> str:
    names = {
        "limit": _clock(check.limit_seconds),
        "lead": _clock(check.warning_seconds),
        "grace": _clock(check.grace_seconds),
        "least": _thresholds(check.threshold_percent.items()),
    }
    if check.is_lifetime:
        text = _("A session ends %(limit)s after its start in any case.")
    elif check.is_network:
        text = _(
            "A session ends %(limit)s after somebody used it last: typed into its terminal, or used one of its apps. "
            "A page left open in the background does not count."
        )
        if check.threshold_percent:
            text += " " + _("A session that uses %(least)s or more of its resources keeps running.")
        else:
            text += " " + _("A program that runs unattended does not count.")
    else:
        text = _(
            "A session ends when it has used less than %(least)s of what it has, on average over %(limit)s. What was "
            "not measured does not count, and a short use does not begin the time anew."
        )
    if check.grace_seconds:
        text += " " + _("No session ends within %(grace)s of its start.")
    return (text + " " + _("The owner is warned %(lead)s before the end.")) % names


def _why_not(check: IdleCheck) -> str:
    texts = {
        "not-reachable": _("The agent does not answer, so activity is not known; the session does not count as idle."),
        "traffic-unknown": _("Usage is counted from now on."),
        "not-measured": _("Too little was measured, so the session does not count as idle."),
        "grace": _("This check has not started yet."),
    }
    if check.code == "in-use" and not check.is_network:
        return _("In use.")
    if check.code == "in-use" and check.ends_at is None:
        return _("Active: resources are in use.")
    return texts.get(check.code, "")


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
