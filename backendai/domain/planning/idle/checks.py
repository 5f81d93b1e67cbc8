"""Computes the state of each idle checker for one session, for the session's page and REST."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Subquery

from backendai.domain.cluster.models import IdleChecker
from backendai.domain.compute.models import ComputeSession, IdleWarning
from backendai.domain.compute.status import Status
from backendai.domain.planning.idle.actions import percent_of
from backendai.domain.planning.idle.reading import check_idle
from backendai.scheduler.find_idle import Finding, Verdict


@dataclass(frozen=True, slots=True)
class IdleCheck:
    """One checker's state for one session. ``remaining_seconds``: until the end if nothing changes (None: unknown).
    ``idle_seconds``: the time since the last use; for lifetime checkers, since the start."""

    finding: Finding
    checker: IdleChecker
    remaining_seconds: int | None
    warned_at: datetime | None
    extended_until: datetime | None
    limit_seconds: int
    grace_seconds: int
    grace_until: datetime
    warning_seconds: int
    idle_seconds: int | None
    measured_percent: Mapping[str, float]
    threshold_percent: Mapping[str, float]
    message: str
    extensions_left: int
    extension_seconds: int


def checks_of(session: ComputeSession, *, now: datetime) -> list[IdleCheck]:
    """Return the state of each checker that applies to a session, the nearest end first. Empty for a session that is
    not running. Writes nothing."""
    if session.status != Status.RUNNING:
        return []
    findings = [one for one in check_idle(now, only=[session.pk]).findings if one.session == session.pk]
    if not findings:
        return []
    checkers = IdleChecker.objects.in_bulk([one.rule.id for one in findings])
    rows = IdleWarning.objects.filter(session=session, collected_at=None)
    told = {row.checker_id: row for row in rows}
    checks = [
        _check(one, session, checkers[one.rule.id], told.get(one.rule.id), now)
        for one in findings
        if one.rule.id in checkers
    ]
    return sorted(
        checks, key=lambda check: (check.finding.due_at is None, check.finding.due_at or now, check.checker.pk)
    )


def announced_end() -> Subquery:
    """Return a query expression for the earliest end of the session that an active warning announces."""
    rows = IdleWarning.objects.filter(session=OuterRef("pk"), warned_at__isnull=False, collected_at=None)
    return Subquery(rows.order_by("due_at").values("due_at")[:1])


def _check(
    finding: Finding, session: ComputeSession, checker: IdleChecker, told: IdleWarning | None, now: datetime
) -> IdleCheck:
    rule = finding.rule
    stands = finding.is_warned and finding.verdict != Verdict.KEEP
    since = None if rule.kind.is_average else finding.since
    return IdleCheck(
        finding=finding,
        checker=checker,
        remaining_seconds=max(0, round((finding.due_at - now).total_seconds())) if finding.due_at else None,
        warned_at=told.warned_at if told and stands else None,
        extended_until=told.extended_until if told else None,
        limit_seconds=round(rule.limit.total_seconds()),
        grace_seconds=round(rule.grace.total_seconds()),
        grace_until=(session.started_at or now) + max(rule.grace, rule.limit),
        warning_seconds=round(rule.lead.total_seconds()),
        idle_seconds=max(0, round((now - since).total_seconds())) if since else None,
        measured_percent=percent_of(finding.shares),
        threshold_percent=percent_of(rule.thresholds),
        message=told.message if told and stands else "",
        extensions_left=max(0, checker.max_extensions - (told.extensions if told else 0)),
        extension_seconds=round(checker.extension.total_seconds()),
    )
