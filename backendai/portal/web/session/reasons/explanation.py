"""Explains in detail why a session waits, or how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.status.steps import Step
from backendai.domain.compute.status import Outcome, Status
from backendai.domain.planning.steps import shown_steps
from backendai.portal.web.dashboard.resources import name_of_slot
from backendai.portal.web.frame.statuses import was_stopped
from backendai.portal.web.session.reasons.advice import wait_of, what_helps, what_to_change

_LOOKS_BACK = 10  # rows of the history
_TOLD_ELSEWHERE = frozenset({"never", "until", "starts_at", "error", "percent", "exit_code", "hostname"})
_SIGNALS = {
    126: gettext_noop("the command is not executable"),
    127: gettext_noop("its command was not found"),
    130: gettext_noop("it was interrupted (SIGINT)"),
    134: gettext_noop("it aborted (SIGABRT)"),
    137: gettext_noop("killed (SIGKILL): forced termination, or out of memory"),
    139: gettext_noop("segmentation fault (SIGSEGV)"),
    143: gettext_noop("it was terminated (SIGTERM)"),
}


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one kernel; ``meaning`` explains its exit code, empty if that has no known meaning."""

    kernel: Kernel
    meaning: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason of a session's state, with all details.

    ``attempts``: scheduler attempts since it became pending. ``error``: the number of the platform's error in the log,
    for administrators (empty for others). ``passed`` and ``failed``: the gates of the last check, made at
    ``looked_at``.
    """

    title: str
    message: str
    code: str
    advice: str
    since: datetime | None
    until: datetime | None
    position: int | None
    attempts: int
    starts_failed: int
    most_starts: int
    avoided: int
    numbers: list[tuple[str, str]]
    passed: list[Step]
    failed: list[Step]
    looked_at: datetime | None
    exits: list[Exit]
    error: str


def explanation_of(session: ComputeSession, user: User) -> Explanation:
    """Return why a visible session waits or ended. Two queries."""
    wait = wait_of(session)
    record = _last_look(session)
    steps = shown_steps(record) if record else []
    data = session.status_data
    return Explanation(
        title=wait.title if wait else _title(session),
        message=(wait.why if wait else "") or in_words(session.reason_text),
        code=session.status_reason,
        advice=what_to_change(session) or what_helps(session),
        since=wait.since if wait else session.ended_at or session.changed_at,
        until=wait.until if wait else None,
        position=wait.position if wait else None,
        attempts=session.attempts,
        starts_failed=session.retries,
        most_starts=session.resource_group.max_retries + 1,
        avoided=len(session.avoid_agents),
        numbers=_numbers(data, {"agent": _("closest agent")} if session.status == Status.PENDING else {}),
        passed=[step for step in steps if step["result"] == Outcome.SUCCESS],
        failed=[step for step in steps if step["result"] != Outcome.SUCCESS],
        looked_at=record.updated_at if record else None,
        exits=[_exit(kernel) for kernel in session.kernels.select_related("agent")],
        error=str(data.get("error", "")) if user.is_superadmin else "",
    )


def _exit(kernel: Kernel) -> Exit:
    return Exit(kernel, "" if was_stopped(kernel) else meaning_of(kernel.exit_code))


def meaning_of(exit_code: int | None) -> str:
    """Return the known meaning of an exit code; empty for codes that a program chose itself."""
    meaning = _SIGNALS.get(exit_code) if exit_code is not None else None
    return _(meaning) if meaning else ""


def _title(session: ComputeSession) -> str:
    return {
        Status.CANCELLED: _("Cancelled before it ran"),
        Status.ERROR: _("Failed"),
        Status.TERMINATED: _("Ended"),
        Status.TERMINATING: _("Terminating"),
        Status.RUNNING: _("Running"),
        Status.STOPPING: _("Stopping"),
        Status.STOPPED: _("Stopped"),
    }.get(Status(session.status), _("Starting"))


def _last_look(session: ComputeSession) -> SchedulingRecord | None:
    """Return the history row with the steps of the scheduler's last check, or None."""
    newest = list(session.records.order_by("-id")[:_LOOKS_BACK])
    told = [record for record in newest if record.uid == session.wait_record]
    return next((record for record in [*told, *newest] if record.sub_steps), None)


def _numbers(data: Mapping[str, Any], names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the numbers of a reason with their labels.

    ``names`` maps keys to labels. Leaves out ids, and numbers that the page shows elsewhere.
    """
    told = [(name, value) for name, value in data.items() if name not in _TOLD_ELSEWHERE and _is_number(value)]
    return [
        (names.get(name, name.replace("_", " ")), name_of_slot(str(value)) if name == "slot" else str(value))
        for name, value in told
    ]


def _is_number(value: object) -> bool:
    """Return whether the value is a number or an amount as text, but no id."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        return False
    try:
        UUID(str(value))
    except ValueError:
        return True
    return False
