"""Events of a session as the official client reads them: a stream of what changes, until the session has ended."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from django.utils import timezone

from backendai.domain.accounts.sign_in.credentials import Credential, user_by
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import TERMINAL, Result, Status
from backendai.gates.gateways.reach import still_visible
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.compat.frame import Call
from backendai.portal.compat.names import named_session, session_again

LONGEST_STREAM = 3600.0  # seconds; the client then asks again
_PAUSE, _BEAT_EVERY = 1.0, 15
_NAMES = {
    Status.PENDING: "session_enqueued", Status.SCHEDULED: "session_scheduled", Status.PULLING: "kernel_pulling",
    Status.CREATING: "kernel_creating", Status.RUNNING: "session_started", Status.TERMINATING: "session_terminating",
    Status.TERMINATED: "session_terminated", Status.CANCELLED: "session_cancelled", Status.ERROR: "session_terminated",
}  # fmt: skip


async def of_session(call: Call) -> StreamingHttpResponse:
    """Return the events of a session, beginning with its status."""
    name = await look(lambda: call.text("sessionId", "") or call.text("sessionName", "") or call.text("name"))
    session = await look(lambda: named_session(call.user, name))
    with call.held():  # a refusal is the answer; the stream takes the place when it begins
        pass
    answer = StreamingHttpResponse(_events(call, session.pk), content_type="text/event-stream")
    answer["Cache-Control"], answer["X-Accel-Buffering"] = "no-store", "no"
    return answer


async def _events(call: Call, pk: UUID) -> AsyncIterator[str]:
    known, until, beat, credential = "", time.monotonic() + LONGEST_STREAM, 0, Credential(key_pair=call.pair.pk)
    with call.held():
        while time.monotonic() < until and await look(_may_see, credential, pk):
            session = await look(session_again, pk)
            if session.status != known:
                known = str(session.status)
                for name, data in await look(_happened, session):
                    yield f"event: {name}\ndata: {json.dumps(data)}\n\n"
            if known in TERMINAL:
                yield "event: server_close\ndata: {}\n\n"
                return
            beat += 1
            if not beat % _BEAT_EVERY:
                yield ": there is no news\n\n"  # a client that has left is noticed
            await asyncio.sleep(_PAUSE)


def _may_see(credential: Credential, pk: UUID) -> bool:
    return still_visible(user_by(credential, timezone.now()), pk)


def _happened(session: ComputeSession) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that the status of a session means, each with its values."""
    main = session.kernels.filter(rank=0).first()
    names = [_NAMES[Status(session.status)]] if session.status in _NAMES else []
    if session.kind.has_result and session.is_terminal:
        names.insert(0, "session_success" if session.result == Result.SUCCESS else "session_failure")
    data = {
        "reason": session.status_reason, "sessionName": session.name, "sessionId": str(session.pk),
        "ownerAccessKey": session.access_key, "exitCode": main.exit_code if main else None,
    }  # fmt: skip
    return [(name, data) for name in names]
