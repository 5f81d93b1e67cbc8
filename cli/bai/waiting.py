"""Waiting for sessions and runs, and saying why it takes long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bai.output import clean
from bai.sdk import api
from bai.sdk.call import Problem
from bai.sdk.client import Client
from bai.sdk.nouns import Run, Session, time_of
from bai.state import tell

_SHORTEST, _LONGEST, _SHARE = 0.5, 10.0, 0.1  # seconds; what takes long is asked for less often


def until_ended(portal: Client, thing: Session | Run) -> int:
    """Wait until a session or run has ended, and tell how; returns its exit code."""
    since = time.monotonic()
    while not thing.has_ended:
        _pause(since)
        is_session = isinstance(thing, Session)
        thing = portal.send(api.session(thing.id)) if is_session else portal.send(api.run(thing.id))
    if isinstance(thing, Run):
        how = ", ".join(f"{number} {state}" for state, number in thing.counts.items() if number)
    else:
        how = thing.status_message or f"exit code {thing.exit_code}"
    tell(f"{thing.name}: {thing.status.lower()}: {how}")
    return thing.exit_code


def until_running(portal: Client, session: Session) -> Session:
    """Return the session once it runs, and tell what it waits for. Raises Problem if it ends before."""
    since, told = time.monotonic(), ""
    while session.status != "RUNNING":
        if session.has_ended:
            detail = f"{session.name} has ended: {session.status_message or session.status}"
            raise Problem(409, {"code": session.status_reason or "session-ended", "detail": detail})
        news = _state_of(session)
        if news != told:
            told = news
            tell(f"{session.name}: {news}")
        _pause(since)
        session = portal.send(api.session(session.id))
    return session


def why_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return an explanation for people: the reason, the place in the queue, and the changes that would help."""
    reason = answer.get("reason") or {}
    lines = [str(answer["message"] or reason.get("message", ""))]
    if reason.get("message") and reason["message"] != lines[0]:
        lines.append(reason["message"])
    if answer.get("position"):
        lines.append(f"Position {answer['position']} of {answer['waiting']} in {answer['resource_group']}.")
    if reason.get("until"):
        lines.append(f"Until {reason['until']}.")
    forecast = answer.get("forecast") or {}
    if forecast.get("early") and forecast.get("late"):
        early, late = (f"{time_of(forecast[key]).astimezone():%d %b %H:%M}" for key in ("early", "late"))
        lines.append(f"It probably starts between {early} and {late}.")
    lines += [f"It would start now: {one['message']}" for one in answer.get("suggestions") or ()]
    return [clean(line) for line in lines]


def _state_of(session: Session) -> str:
    fetched = next((one.get("progress") for one in session.kernels if one.get("progress")), None)
    progress = f" {fetched:.0%}" if fetched is not None and session.status != "PENDING" else ""
    return f"{session.status.lower()}{progress}" + (f": {session.status_message}" if session.status_message else "")


def _pause(since: float) -> None:
    time.sleep(min(_LONGEST, max(_SHORTEST, _SHARE * (time.monotonic() - since))))
