"""Kind ``network-timeout``: a session ends when nobody has used its terminal or an app for a certain time. With
thresholds, a session that is busy by itself is in use, too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from backendai.base.core.messages import Message, MessageTemplate
from backendai.scheduler.find_idle import Finding, IdleKind, Rule, Verdict, Watched, by_time, why_used


class Network(IdleKind):
    name = "network-timeout"
    label = Message("Network idle timeout")
    reason = "idle-timeout"
    reason_text = Message("Idle longer than its resource group allows.")
    needs_traffic = True
    about_thresholds = Message("For a network idle timeout: optional; sessions above a threshold are not ended.")
    warning = MessageTemplate("Unused since {moment}; idle checker {name} ends sessions after {limit} without use.")
    end = MessageTemplate("No traffic for {since}; idle checker {name} allows {limit}.")
    sentence = MessageTemplate("Ends after {limit} without traffic.")
    sentence_with_thresholds = MessageTemplate(
        "Ends after {limit} without traffic, unless the session uses {least} or more."
    )
    short = MessageTemplate("after {limit} without activity")
    help = MessageTemplate(
        "A session ends {limit} after somebody used it last: typed into its terminal, or used one of its apps. "
        "A page left open in the background does not count."
    )
    help_with_thresholds = MessageTemplate("A session that uses {least} or more of its resources keeps running.")
    help_without_thresholds = MessageTemplate("A program that runs unattended does not count.")
    ends = MessageTemplate("Ends {when}, at {at}, if nobody uses it.")
    in_use = Message("Active: resources are in use.")

    def check(self, session: Watched, rule: Rule, now: datetime) -> Finding:
        """Return the result of the time without traffic; of unknown traffic, that the session is not idle."""
        if not session.is_reachable:
            return Finding(session.id, rule, Verdict.KEEP, "not-reachable")
        if session.last_traffic is None:
            return Finding(session.id, rule, Verdict.KEEP, "traffic-unknown")
        since = max(session.last_traffic, session.known_since, session.started_at)
        shares: Mapping[str, float | None] = {}
        if rule.thresholds:  # a busy session is in use even without traffic
            use = session.uses.get(rule.id)
            shares = use.shares if use else {}
            if code := why_used(use, rule):
                return Finding(session.id, rule, Verdict.KEEP, code, since=since, shares=shares)
        return by_time(session, rule, now, start=since, since=since, shares=shares, code="in-use")

    def weighs_use(self, rule: Rule, started_at: datetime, last_traffic: datetime | None, now: datetime) -> bool:
        """Return whether the session is near the end of the time without traffic."""
        return last_traffic is not None and now >= last_traffic + rule.limit - rule.lead


KIND = Network()
