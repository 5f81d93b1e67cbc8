"""Sessions in the form of the official client: what they are, their end, and running code in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from backendai.domain.cluster.site import current_announcements
from backendai.domain.compute.services.launching.renaming import rename_session
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import TERMINAL
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.api.sessions.logs import log_of
from backendai.portal.compat.frame import Call, NotOffered
from backendai.portal.compat.launching import ports_of
from backendai.portal.compat.names import awaited, named_session

VERSIONS = {"version": "v7.20230615", "manager": "23.09.10"}  # the newest that clients from 23.09 on speak with
_END_SECONDS = 60.0


def versions(call: Call) -> dict[str, str]:
    """Return the version of the protocol, which the client asks for before each command."""
    return VERSIONS


def announcement(call: Call) -> dict[str, Any]:
    """Return the announcements that stand on top of pages."""
    texts = [one.text for one in current_announcements(timezone.now())[:10]]
    return {"enabled": bool(texts), "message": "\n\n".join(texts)}


async def end(call: Call, name: str) -> dict[str, Any]:
    """Terminate the session, and answer when it has ended, or after a minute."""
    with call.held():
        session = await awaited(await look(_end, call, name), TERMINAL, _END_SECONDS)
    return {"stats": {"status": str(session.status).lower()}}


def _end(call: Call, name: str) -> UUID:
    session = named_session(call.user, name)
    terminate_session(session, call.user, force=call.flag("forced"))
    return session.pk


def restart(call: Call, name: str) -> None:
    """Raise NotOffered."""
    raise NotOffered("Sessions are not restarted here: terminate this one, and create another.")


def rename(call: Call, name: str) -> None:
    """Rename the session."""
    rename_session(named_session(call.user, name), call.user, call.text("name"))


def logs(call: Call, name: str) -> dict[str, Any]:
    """Return the output of the main kernel."""
    session = named_session(call.user, name)
    content, _ = log_of(session.kernels.select_related("agent").get(rank=0))
    return {"result": {"logs": content.decode(errors="replace")}}


def history(call: Call, name: str) -> dict[str, Any]:
    """Return when the session got each status."""
    one = named_session(call.user, name)
    times: dict[str, datetime | None] = {
        "PENDING": one.created_at, "SCHEDULED": one.scheduled_at, "RUNNING": one.started_at,
        "TERMINATING": one.terminating_at, str(one.status if one.ended_at else "TERMINATED"): one.ended_at,
    }  # fmt: skip
    return {"result": {status.lower(): at.isoformat() for status, at in times.items() if at}}


def apps(call: Call, name: str) -> list[dict[str, Any]]:
    """Return the apps of the session."""
    return ports_of(named_session(call.user, name))
