"""Is this endpoint possible? One validator for the form, REST and the dry run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from math import isfinite

from django.conf import settings

from backendai.accounts.models import User
from backendai.cluster.capabilities import why_not
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.services.check import Checked, check_spec
from backendai.compute.services.check_wishes import MOST_AGENTS
from backendai.compute.spec import SessionSpec
from backendai.core.errors import UserError
from backendai.core.session_kinds import kinds_with
from backendai.serving.models import MOST_REPLICAS
from backendai.serving.spec import EndpointSpec, RevisionSpec
from backendai.wire.capabilities import Capability

(SESSION_TYPE,) = kinds_with("is_served")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z")
_PATH = re.compile(r"/[!-~]*\Z")
_LONGEST = timedelta(hours=6).total_seconds()


def check_endpoint(user: User, spec: EndpointSpec) -> Checked:
    """Return what each replica would be; raises a UserError that names the field, the limit and what to do."""
    if not _NAME.match(spec.name):
        text = "Use 1 to 40 small letters, digits and dashes; begin and end with a letter or a digit."
        raise UserError(text, field="name", code="invalid-name")
    check_numbers(spec.minimum, spec.maximum, spec.target)
    if spec.max_surge + spec.max_unavailable < 1:
        text = "An update needs a surge or a gap: set max_surge or max_unavailable to 1 or more."
        raise UserError(text, field="max_surge", code="invalid-update")
    if not 0 < spec.asleep_after <= 30 * 86400:
        raise UserError("Enter 1 second to 30 days.", field="asleep_after", code="invalid-time")
    check_public(spec.is_public)
    return check_revision(user, spec.revision, project=spec.project, resource_group=spec.resource_group)


def check_public(is_public: bool) -> None:
    """Refuse an endpoint without tokens where the site does not allow any."""
    if is_public and not settings.SERVING_PUBLIC:
        text = "This site allows no public endpoints: leave it private, and give callers tokens."
        raise UserError(text, field="is_public", code="public-not-allowed")


def check_numbers(minimum: int, maximum: int, target: float) -> None:
    """Refuse numbers of replicas that make no sense together."""
    if not 1 <= maximum <= MOST_REPLICAS:
        raise UserError(
            "Choose 1 to {most_replicas} replicas.",
            most_replicas=MOST_REPLICAS,
            field="maximum",
            code="invalid-maximum",
        )
    if not 0 <= minimum <= maximum:
        raise UserError("Choose 0 to {maximum}, the maximum.", maximum=maximum, field="minimum", code="invalid-minimum")
    if not isfinite(target) or not 0 < target <= 10_000:
        raise UserError("Enter a number above 0, at most 10000.", field="target", code="invalid-target")


def check_revision(user: User, spec: RevisionSpec, *, project: str, resource_group: str) -> Checked:
    """Return what a replica of this revision would be, checked as a launch is."""
    if not spec.command.strip():
        text = "Enter the command that starts the model server."
        raise UserError(text, field="command", code="missing-command")
    if not 1 <= spec.port <= 65535:
        raise UserError("Enter a port from 1 to 65535.", field="port", code="invalid-port")
    if spec.probe_path and (not _PATH.match(spec.probe_path) or len(spec.probe_path) > 255):
        text = "A path begins with '/' and has no spaces; leave it empty to probe by a connection."
        raise UserError(text, field="probe_path", code="invalid-path")
    for name, seconds in (("startup_timeout", spec.startup_timeout), ("drain_timeout", spec.drain_timeout)):
        if not 1 <= seconds <= _LONGEST:
            raise UserError("Enter 1 second to 6 hours.", field=name, code="invalid-time")
    checked = check_spec(user, session_spec(spec, project=project, resource_group=resource_group))
    agents_that_serve(checked.group)
    return checked


def agents_that_serve(group: ResourceGroup) -> list[str]:
    """Return the ids of the group's agents that reach ports of sessions; empty where all do, or none is registered.
    Raises UserError where none does."""
    agents = list(Agent.objects.registered().filter(resource_group=group).order_by("name"))
    faults = [why_not(agent, Capability.SERVING) for agent in agents]
    able = [str(agent.pk) for agent, fault in zip(agents, faults, strict=True) if not fault]
    if agents and not able:
        text = f"No agent of resource group {group.name} can serve requests. {faults[0]} Choose another group."
        raise UserError(text, field="resource_group", code="apps-impossible")
    return able[:MOST_AGENTS] if len(able) < len(agents) else []


def session_spec(
    spec: RevisionSpec, *, project: str, resource_group: str, name: str = "", agents: Sequence[str] = ()
) -> SessionSpec:
    """Return the launch of one replica."""
    return SessionSpec(
        image=spec.image,
        name=name,
        session_type=SESSION_TYPE,
        resources=spec.resources,
        preset=spec.preset,
        resource_group=resource_group,
        project=project,
        environ={"PORT": str(spec.port), **spec.environ},
        startup_command=spec.command,
        cluster_size=spec.cluster_size,
        cluster_mode=spec.cluster_mode,
        agents=agents,
    )
