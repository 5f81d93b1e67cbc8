"""Is this endpoint possible? One validator for the form, REST and the dry run."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from math import isfinite

from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.models import User
from backendai.domain.cluster.capabilities import why_not
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.services.requests.check import Checked, check_spec
from backendai.domain.compute.services.requests.scheduling import MOST_AGENTS
from backendai.domain.compute.spec import MountRequest, SessionSpec
from backendai.domain.serving.models import MOST_REPLICAS, AutoScalingRule
from backendai.domain.serving.rule_kinds import RULE_KINDS
from backendai.domain.serving.services.quota import check_maximum
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec
from backendai.domain.storage.status import Rights

(SESSION_TYPE,) = kinds_with("is_served")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z")
_PATH = re.compile(r"/[!-~]*\Z")
_ORIGIN = re.compile(r"https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?\Z")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_LONGEST = timedelta(hours=6).total_seconds()
MOST_ORIGINS, MOST_RULES = 20, 20
PATIENCE: dict[str, tuple[float, float]] = {
    "concurrency": (0, 100_000),
    "queue": (0, 10_000),
    "queue_seconds": (0.1, 600),
    "hold_seconds": (0.1, 600),
    "answer_timeout": (1, 86_400),
}


def check_endpoint(user: User, spec: EndpointSpec) -> Checked:
    """Return what each replica would be; raises a UserError that names the field, the limit and what to do."""
    if not _NAME.match(spec.name):
        text = Message("Use 1 to 40 small letters, digits and dashes; begin and end with a letter or a digit.")
        raise UserError(text, field="name", code="invalid-name")
    check_numbers(spec.minimum, spec.maximum, spec.target)
    check_update(spec.max_surge, spec.max_unavailable)
    check_patience(**{name: getattr(spec, name) for name in PATIENCE})
    check_sleep(spec.asleep_after)
    check_public(spec.is_public)
    check_access(spec.origins, spec.affinity)
    check_shares(spec.warm_up, spec.canary)
    checked = check_revision(user, spec.revision, project=spec.project, resource_group=spec.resource_group)
    check_maximum(checked.limited, checked.total, spec.maximum)
    return checked


def check_update(max_surge: int, max_unavailable: int) -> None:
    """Refuse an update that can neither add a replica nor do without one."""
    if max_surge + max_unavailable < 1:
        text = Message("An update needs one more replica or a gap: set one of both to 1 or more.")
        raise UserError(text, field="max_surge", code="invalid-update")


def check_patience(**values: float) -> None:
    """Refuse limits of waiting requests that make no sense; by the names of ``PATIENCE``."""
    for field, value in values.items():
        least, most = PATIENCE[field]
        if not isfinite(value) or not least <= value <= most:
            raise UserError(
                "Enter a number from {least} to {most}.",
                least=f"{least:g}",
                most=f"{most:g}",
                field=field,
                code="invalid-limit",
            )


def check_sleep(seconds: float) -> None:
    """Refuse a time without requests that makes no sense."""
    if not 0 < seconds <= 30 * 86400:
        raise UserError("Enter 1 second to 30 days.", field="asleep_after", code="invalid-time")


def check_public(is_public: bool) -> None:
    """Refuse an endpoint without tokens where the site does not allow any."""
    if is_public and not settings.SERVING_PUBLIC:
        text = Message("This site allows no public endpoints: leave it private, and give callers tokens.")
        raise UserError(text, field="is_public", code="public-not-allowed")


def check_access(origins: Sequence[str], affinity: str) -> None:
    """Refuse origins that no browser sends, and names that no header has."""
    for origin in origins:
        if not _ORIGIN.match(origin):
            raise UserError(
                "{origin} is not a valid origin: enter https://NAME, with a port unless it is the default one.",
                origin=repr(origin[:80]),
                field="origins",
                code="invalid-origin",
            )
    if len(origins) > MOST_ORIGINS:
        raise UserError(
            "List at most {most_origins} origins.", most_origins=MOST_ORIGINS, field="origins", code="too-many-origins"
        )
    if affinity and not _HEADER.match(affinity):
        text = Message("Enter the name of a header: letters, digits and dashes, for example X-Conversation.")
        raise UserError(text, field="affinity", code="invalid-header")


def check_shares(warm_up: float, canary: int) -> None:
    """Refuse a warm-up or a canary share that means nothing."""
    if not isfinite(warm_up) or not 0 <= warm_up <= 3600:
        raise UserError("Enter 0 to 3600 seconds.", field="warm_up", code="invalid-time")
    if not 0 <= canary <= 100:
        raise UserError("Enter 0 to 100 per cent.", field="canary", code="invalid-share")


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


def check_queries(rules: Sequence[AutoScalingRule], user: User, known: Collection[str]) -> None:
    """Raise UserError for a query that is not among the ``known`` ones, unless the user is a superadmin: with queries
    one reads what the server knows of everybody.
    """
    if not user.is_superadmin and any(rule.query and rule.query not in known for rule in rules):
        text = Message("Ask a superadmin of this site to write the query: with it one reads metrics of everybody.")
        raise UserError(text, field="query", code="query-needs-superadmin")


def check_rules(rules: Sequence[AutoScalingRule]) -> None:
    """Refuse scaling rules that mean nothing: without a threshold, or with thresholds that contradict each other."""
    if len(rules) > MOST_RULES:
        text = Message("An endpoint has at most {most} rules: remove one first.", most=MOST_RULES)
        raise UserError(text, field="metric", code="too-many-rules")
    for rule in rules:
        RULE_KINDS[rule.metric].check_query(rule.query)
        if rule.up_over is None and rule.down_under is None:
            raise UserError("Enter a value above or below which to scale.", field="up_over", code="missing-threshold")
        for field in ("up_over", "down_under"):
            value = getattr(rule, field)
            if value is not None and (not isfinite(value) or not 0 <= value <= 1e9):
                raise UserError("Enter a number from 0 to 1000000000.", field=field, code="invalid-threshold")
        if rule.up_over is not None and rule.down_under is not None and rule.down_under >= rule.up_over:
            raise UserError(
                "Choose a value below {up}: the number would go up and down at once.",
                up=f"{rule.up_over:g}",
                field="down_under",
                code="invalid-threshold",
            )


def check_revision(user: User, spec: RevisionSpec, *, project: str, resource_group: str) -> Checked:
    """Return what a replica of this revision would be, checked as a launch is."""
    if not spec.command.strip():
        text = Message("Enter the command that starts the model server.")
        raise UserError(text, field="command", code="missing-command")
    if not 1 <= spec.port <= 65535:
        raise UserError("Enter a port from 1 to 65535.", field="port", code="invalid-port")
    if spec.probe_path and (not _PATH.match(spec.probe_path) or len(spec.probe_path) > 255):
        text = Message("A path begins with '/' and has no spaces; leave it empty to probe by a connection.")
        raise UserError(text, field="probe_path", code="invalid-path")
    for name, seconds in (("startup_timeout", spec.startup_timeout), ("drain_timeout", spec.drain_timeout)):
        if not 1 <= seconds <= _LONGEST:
            raise UserError("Enter 1 second to 6 hours.", field=name, code="invalid-time")
    _check_mounts(spec.mounts)
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
        text = Message(
            "No agent of resource group {group} can serve requests. {fault} Choose another group.",
            group=group.name,
            fault=faults[0],
        )
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
        environ=_told(spec) | dict(spec.environ),
        mounts=[replace(one, rights=Rights.VIEW) for one in spec.mounts],
        startup_command=spec.command,
        cluster_size=spec.cluster_size,
        cluster_mode=spec.cluster_mode,
        agents=agents,
    )


def _told(spec: RevisionSpec) -> dict[str, str]:
    """Return what the server of a replica finds in its variables. An agent that gives its kernels addresses of their
    own says another host."""
    told = {"HOST": "0.0.0.0", "PORT": str(spec.port)}  # noqa: S104  (inside of the container)
    return told | ({"MODEL_NAME": spec.model_name} if spec.model_name else {})


def _check_mounts(mounts: Sequence[MountRequest]) -> None:
    """Refuse folders that one replica could write while others read them."""
    if any(one.rights not in ("", Rights.VIEW) for one in mounts):
        text = Message("Replicas mount folders read-only: leave the rights out, or ask for view.")
        raise UserError(text, field="mounts", code="invalid-mount")
