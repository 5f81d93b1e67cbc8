"""Carries out the idle policy: warns owners, ends sessions, and withdraws warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message
from backendai.domain.cluster.slot_types import look_of
from backendai.domain.compute.services.life.idle import (
    IdleCase,
    collect_idle,
    delete_stale_idle,
    postpone,
    stop_idle,
    warn_idle,
    withdraw,
)
from backendai.domain.compute.services.records.traffic import note_traffic
from backendai.domain.planning.idle.reading import IdleReading
from backendai.scheduler.find_idle import Finding, Verdict


def act_on_idle(reading: IdleReading) -> int:
    """Warn idle sessions, withdraw warnings of sessions in use, and end sessions whose warning time is over.

    Returns the number of these actions. At most ``MOST_AT_ONCE`` of each kind; the next pass continues. For sessions
    without recorded traffic, the time without traffic begins now.
    """
    now = reading.now
    note_traffic(dict.fromkeys(reading.without_traffic, now))
    idle = [one for one in reading.findings if one.verdict != Verdict.KEEP]
    stands = {one.recorded.id for one in idle}
    changed = withdraw([pk for pk in reading.warned if pk not in stands], now=now)
    postpone(dict(_later_ends(idle)))
    changed += warn_idle([_case(one, now) for one in idle if not one.is_warned], now=now)
    due = [_case(one, now) for one in idle if one.verdict == Verdict.COLLECT]
    stopped = stop_idle([one for one in due if one.finding.rule.stops], now=now)
    changed += len(stopped) + len(collect_idle([one for one in due if one.finding.session not in stopped], now=now))
    delete_stale_idle()
    return changed


def messages_of(finding: Finding, now: datetime) -> tuple[str, str]:
    """Return two messages for the owner: the warning before an idle end, and the message after it. A warning should
    contain times instead of durations, as the owner may read it later."""
    rule = finding.rule
    values = {
        "name": rule.name,
        "limit": describe_duration(rule.limit),
        "since": describe_duration(now - finding.since) if finding.since else "",
        "moment": f"{finding.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if finding.since else "",
        "used": _percentages(finding.shares),
        "least": _percentages(rule.thresholds),
    }
    return rule.kind.warning.filled(values), rule.kind.end.filled(values)


def numbers_of(finding: Finding, now: datetime) -> dict[str, Any]:
    """Return the numbers behind the messages as JSON, for scripts."""
    rule = finding.rule
    numbers: dict[str, Any] = {"limit_seconds": round(rule.limit.total_seconds())}
    if finding.since and not rule.kind.is_average:
        numbers["measured_seconds"] = round((now - finding.since).total_seconds())
    if rule.thresholds:
        numbers["measured_percent"] = percent_of(finding.shares)
        numbers["threshold_percent"] = percent_of(rule.thresholds)
    return numbers


def percent_of(shares: Mapping[str, float | None]) -> dict[str, float]:
    """Return shares as percentages, without unmeasured ones."""
    return {slot: round(share * 100, 2) for slot, share in sorted(shares.items()) if share is not None}


def _later_ends(idle: Iterable[Finding]) -> Iterator[tuple[UUID, datetime]]:
    for one in idle:
        pk, announced = one.recorded.id, one.recorded.due_at
        if one.is_warned and one.verdict == Verdict.WARN and pk and announced and one.due_at and one.due_at > announced:
            yield pk, one.due_at


def _case(finding: Finding, now: datetime) -> IdleCase:
    message, end_message = messages_of(finding, now)
    measured, numbers = percent_of(finding.shares), numbers_of(finding, now)
    return IdleCase(finding, finding.due_at or now + finding.rule.lead, message, end_message, measured, numbers)


def _percentages(shares: Mapping[str, float | None]) -> str:
    parts = [
        Message("{slot} {percent} %", slot=look_of(slot).display_name, percent=f"{percent:g}")
        for slot, percent in percent_of(shares).items()
    ]
    return Message.joined(parts, ", ")
