"""Kind ``utilization``: a session ends when it has used too little of its allocation, on average over a time."""

from __future__ import annotations

from datetime import datetime

from backendai.base.core.messages import Message, MessageTemplate
from backendai.scheduler.find_idle import Finding, IdleKind, Rule, Verdict, Watched, by_time, why_used


class Utilization(IdleKind):
    name = "utilization"
    label = Message("Utilization checker")
    reason = "idle-utilization"
    reason_text = Message("Utilization below the minimum of its resource group.")
    is_average = True
    thresholds_missing = Message("Write at least one slot with a percentage, such as cuda.device=5.")
    about_thresholds = Message("Required for a utilization checker.")
    warning = MessageTemplate(
        "It used {used} on average over {limit}; idle checker {name} ends sessions below {least}."
    )
    end = MessageTemplate("Average utilization {used} over {limit}; idle checker {name} requires {least}.")
    sentence = MessageTemplate("Ends when the session has used less than {least} on average for {limit}.")
    short = MessageTemplate("after {limit} below {least}")
    help = MessageTemplate(
        "A session ends when it has used less than {least} of what it has, on average over {limit}. What was "
        "not measured does not count, and a short use does not begin the time anew."
    )
    ends = MessageTemplate("Ends {when}, at {at}, if utilization stays low.")

    def check(self, session: Watched, rule: Rule, now: datetime) -> Finding:
        """Return the result of the average use; of use that is not known, that the session is not idle."""
        use = session.uses.get(rule.id)
        shares = use.shares if use else {}
        if now < session.started_at + max(rule.grace, rule.limit):
            return Finding(session.id, rule, Verdict.KEEP, "grace", shares=shares)
        if code := why_used(use, rule) if session.is_reachable else "not-reachable":
            return Finding(session.id, rule, Verdict.KEEP, code, shares=shares)
        # Idle as of now: the session ends once the warning has lasted for the lead.
        return by_time(session, rule, now, start=session.started_at, since=now - rule.limit, shares=shares)


KIND = Utilization()
