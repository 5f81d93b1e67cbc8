"""Launches sessions from the body of the official client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rest_framework.exceptions import ValidationError

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.acting import owner_named
from backendai.domain.accounts.models import KeyPair, Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import App, apps_of, main_kernel, settings_of
from backendai.domain.compute.services.launching.create import launch_session
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_document import spec_of
from backendai.domain.compute.status import TERMINAL, Status
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.compat.frame import Call, NotOffered
from backendai.portal.compat.names import awaited, session_again

SSHD = "sshd"  # no app here, but the SSH gate
LONGEST_WAIT = 3600.0  # seconds; with no limit of the client a launch is held until it runs
_USUAL_GROUP = "default"  # which the client names unless told otherwise, and which need not be a project here
_NOT_HERE = {
    "bootstrap_script": "Write the bootstrap script on your account page: it runs in each of your sessions.",
    "callback_url": "The platform calls no address when a session changes: wait for it with session watch.",
}


async def create(call: Call) -> tuple[dict[str, Any], int]:
    """Launch a session, or find the live one of this name. Answered when it runs, unless it is only enqueued."""
    with call.held():
        session, is_new = await look(_launch, call)
        status, wait = str(session.status), _seconds(call.values.get("maxWaitSeconds"))
        if not call.flag("enqueueOnly"):
            session = await awaited(session.pk, {Status.RUNNING, *TERMINAL}, wait or LONGEST_WAIT)
            status = str(session.status) if session.status in {Status.RUNNING, *TERMINAL} else "TIMEOUT"
        ports = await look(ports_of, session)
    told = {"sessionId": str(session.pk), "sessionName": session.name, "status": status, "created": is_new}
    return told | {"kernelId": str(session.pk), "servicePorts": ports, "service_ports": ports}, 201 if is_new else 200


def ports_of(session: ComputeSession) -> list[dict[str, Any]]:
    """Return the session's apps, and ``sshd`` for the SSH gate."""
    found = apps_of(session, main_kernel(session), settings_of(session))
    shown = [_port(name_of(one), one.protocol, one.port, one.arguments) for one in found if one.name != SSHD]
    return [_port(SSHD, "tcp", 22, {}), *shown]


def name_of(app: App) -> str:
    """Return the client's name of an app: of a port that the launch opened, its number."""
    return str(app.port) if app.protocol == "preopen" else app.name


def _port(name: str, protocol: str, port: int, arguments: Mapping[str, str]) -> dict[str, Any]:
    ports = {"ports": [port], "container_ports": [port], "allowed_arguments": dict(arguments) or None}
    return {"name": name, "protocol": protocol, **ports}


def _launch(call: Call) -> tuple[ComputeSession, bool]:
    spec = _spec(call)
    owner = owner_named(call.user, spec.owner, is_launch=True)
    earlier = ComputeSession.objects.filter(owner=owner, name=spec.name).live().first() if spec.name else None
    if earlier is not None:
        is_alike = Image.objects.named(spec.image).filter(pk=earlier.image_id).exists()
        if call.flag("reuseIfExists") and is_alike:
            return session_again(earlier.pk), False
        text = "You already have a session named {name}. Terminate it, or choose another name."
        raise Conflict(text, name=spec.name, code="session-already-exists", existingSessionId=str(earlier.pk))
    made = launch_session(call.user, spec)
    return session_again(made.session.pk), True


def _spec(call: Call) -> SessionSpec:
    spec = spec_of(_document(call))
    return spec if spec.owner or spec.access_key else replace(spec, access_key=call.pair.access_key)


def _document(call: Call) -> dict[str, Any]:
    """Return the launch request in our words, without what is empty; its reader bounds each value."""
    body = call.values
    config = body.get("config") or {}
    if not isinstance(config, Mapping):
        raise ValidationError({"config": "Write names with their values."})
    for name, text in _NOT_HERE.items():
        if body.get(name):
            raise NotOffered(text, field=name)
    document = {
        "image": body.get("image") or body.get("lang"), "name": body.get("name") or body.get("clientSessionToken"),
        "type": body.get("type") or body.get("sessionType"), "resources": config.get("resources"),
        "shm": _part(config, "resource_opts").get("shmem"), "environ": config.get("environ"),
        "preopen_ports": config.get("preopen_ports"), "resource_group": config.get("scalingGroup"),
        "project": _project(call), "cluster_size": body.get("clusterSize"), "cluster_mode": body.get("clusterMode"),
        "startup_command": body.get("startupCommand"), "starts_at": body.get("starts_at"),
        "depends_on": body.get("dependencies"), "agents": config.get("agentList"), "mounts": _mounts(config),
        "owner": _owner(call),
    }  # fmt: skip
    return {"image": "", **{name: value for name, value in document.items() if value}}


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name) or {}
    if not isinstance(found, Mapping):
        raise UserError("{name} must be names with their values.", name=name, field=name)
    return found


def _mounts(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the mounts; a newer client names folders by ID."""
    found = []
    for folders, places in (("mounts", "mount_map"), ("mount_ids", "mount_id_map")):
        targets, named = _part(config, places), config.get(folders) or []
        if not isinstance(named, list):
            raise UserError("{name} must be a list.", name=folders, field=folders)
        found += [{"folder": one, "target": targets.get(str(one)) or ""} for one in named]
    return found


def _project(call: Call) -> str:
    group = call.text("group", "")
    is_own = group != _USUAL_GROUP or Project.objects.usable_by(call.user).filter(name=group).exists()
    return group if is_own else ""


def _owner(call: Call) -> str:
    """Return the address of the person whose access key the client names: the rules of ``acting`` decide on it."""
    access_key = call.text("owner_access_key", "")
    users = User.objects.filter(key_pairs__in=KeyPair.objects.filter(pk=access_key)).values_list("email", flat=True)
    return (users.first() or access_key) if access_key else ""


def _seconds(value: Any) -> float:
    """Return how long the client waits at most; 0: it names no limit."""
    try:
        return min(max(float(value or 0), 0.0), LONGEST_WAIT)
    except (TypeError, ValueError):
        raise UserError("maxWaitSeconds must be a number.", field="maxWaitSeconds") from None
