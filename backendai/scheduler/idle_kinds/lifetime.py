"""Kind ``session-lifetime``: a session ends a certain time after its start, however it is used."""

from __future__ import annotations

from datetime import datetime

from backendai.base.core.messages import Message, MessageTemplate
from backendai.scheduler.find_idle import Finding, IdleKind, Rule, Watched, by_time


class Lifetime(IdleKind):
    name = "session-lifetime"
    label = Message("Max session lifetime")
    reason = "idle-session-lifetime"
    reason_text = Message("Reached the maximum lifetime of an idle checker.")
    thresholds_refused = Message("The maximum lifetime does not depend on utilization: leave it empty.")
    warning = MessageTemplate("Running since {moment}; idle checker {name} ends sessions after {limit}.")
    end = MessageTemplate("It ran for {since}; idle checker {name} allows {limit}.")
    sentence = MessageTemplate("Ends after {limit} in any case.")
    short = MessageTemplate("after {limit} in any case")
    help = MessageTemplate("A session ends {limit} after its start in any case.")
    ends = MessageTemplate("Ends {when}, at {at}.")

    def check(self, session: Watched, rule: Rule, now: datetime) -> Finding:
        """Return the result of the time since the start."""
        return by_time(session, rule, now, start=session.started_at, since=session.started_at)


KIND = Lifetime()
