"""Sessions in the form of the official client: what they are, their end, and running code in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from backendai.domain.cluster.site import current_announcements
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.renaming import rename_session
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import TERMINAL
from backendai.gates.gateways.guests import GuestTarget, ask
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.api.sessions.execute import completed, cursor_in, shape_of
from backendai.portal.api.sessions.logs import log_of
from backendai.portal.compat.frame import Call, NotOffered
from backendai.portal.compat.launching import ports_of
from backendai.portal.compat.names import awaited, guest_for_code, guest_of, named_session

VERSIONS = {"version": "v7.20230615", "manager": "23.09.10"}  # the newest that clients from 23.09 on speak with
MOST_CODE = 2**20
_END_SECONDS, _RUN_SECONDS = 60.0, 2.0
_MOST_GRAPH, _MOST_MATCHES = 200, 100
_RUNNING = ("RUNNING", "WAITING_INPUT", "QUEUED")


def versions(call: Call) -> dict[str, str]:
    """Return the version of the protocol, which the client asks for before each command."""
    return VERSIONS


def announcement(call: Call) -> dict[str, Any]:
    """Return the announcements that stand on top of pages."""
    texts = [one.text for one in current_announcements(timezone.now())[:10]]
    return {"enabled": bool(texts), "message": "\n\n".join(texts)}


def facts(call: Call, name: str) -> dict[str, Any]:
    """Return what the session is."""
    one = named_session(call.user, name)
    age = timezone.now() - one.created_at
    return {
        "id": str(one.pk), "name": one.name, "image": one.image.name, "lang": one.image.name, "status": one.status,
        "statusInfo": str(one.reason_text), "domainName": one.project.domain.name, "groupId": str(one.project_id),
        "userId": str(one.owner_id), "scalingGroup": one.resource_group.name, "occupiedSlots": dict(one.slots),
        "creationTime": one.created_at.isoformat(), "age": int(age.total_seconds() * 1000), "numQueriesExecuted": 0,
    }  # fmt: skip


async def end(call: Call, name: str) -> dict[str, Any]:
    """Terminate the session, and answer when it has ended, or after a minute."""
    with call.held():
        session = await look(_end, call, name)
        session = await awaited(session, TERMINAL, _END_SECONDS)
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


def graph(call: Call, name: str) -> dict[str, Any]:
    """Return the session with those that it waits for, and so on; 200 at most."""
    return _graph(named_session(call.user, name), {})


def _graph(one: ComputeSession, seen: dict[UUID, None]) -> dict[str, Any]:
    seen[one.pk] = None
    rest = [each for each in one.depends_on.order_by("created_at") if each.pk not in seen and len(seen) < _MOST_GRAPH]
    at = one.ended_at or one.started_at or one.created_at
    return {
        "session_id": str(one.pk), "session_name": one.name, "status": f"KernelStatus.{one.status}",
        "status_changed": at.strftime("%Y-%m-%d %H:%M:%S"), "depends_on": [_graph(each, seen) for each in rest],
    }  # fmt: skip


def matches(call: Call) -> dict[str, Any]:
    """Return the live sessions whose name begins so."""
    own = ComputeSession.objects.visible_to(call.user).filter(owner=call.user, name__startswith=call.text("id"))
    found = own.live().order_by("name")[:_MOST_MATCHES]
    return {"matches": [{"id": str(one.pk), "name": one.name, "status": one.status} for one in found]}


def apps(call: Call, name: str) -> list[dict[str, Any]]:
    """Return the apps of the session."""
    return ports_of(named_session(call.user, name))


async def execute(call: Call, name: str) -> dict[str, Any]:
    """Run, continue, complete or answer code; the answer has what is new after 2 s at most."""
    target = await look(guest_for_code, call, name)
    order = await look(lambda: call.values)
    if order.get("mode") == "complete":
        return await complete(call, name)
    return {"result": await executed(target, {**order, "runId": await look(call.text, "runId", uuid4().hex, most=64)})}


async def executed(target: GuestTarget, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the run after an order of the client. Raises the errors of ``ask``."""
    run_id, mode = order["runId"], order.get("mode") or "query"
    code, options = str(order.get("code") or "")[: MOST_CODE + 1], order.get("options")
    if mode == "input":
        await ask(target, {"op": "input", "run_id": run_id, "text": code})
    if mode not in ("query", "batch"):
        return shape_of(await ask(target, {"op": "take", "run_id": run_id, "wait": _RUN_SECONDS}))
    chosen = options if isinstance(options, Mapping) else {}
    steps = {step: chosen.get(step) for step in ("clean", "build", "exec")}
    run = {"op": "run", "run_id": run_id, "wait": _RUN_SECONDS, "mode": mode, "code": code, "takes": True}
    return shape_of(await ask(target, {**run, "options": steps}))


async def complete(call: Call, name: str) -> dict[str, Any]:
    """Return completions of code at the cursor."""
    target, code = await look(guest_of, call, name), await look(call.text, "code", "", most=MOST_CODE)
    options = call.values.get("options")
    cursor = cursor_in(dict(options) if isinstance(options, Mapping) else {}, code)
    found = await ask(target, {"op": "complete", "code": code, "cursor": cursor})
    return {"result": completed("", found.get("matches") or [])}


async def interrupt(call: Call, name: str) -> None:
    """Interrupt what runs in the session."""
    target = await look(guest_of, call, name)
    for run in (await ask(target, {"op": "runs"})).get("runs") or ():
        if run.get("state") in _RUNNING:
            await ask(target, {"op": "interrupt", "run_id": run["run_id"]})
