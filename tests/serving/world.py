"""A small world around endpoints: real services, passes and scheduler; agents and app proxies are told what to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import User
from backendai.domain.compute.auditing import World as AuditWorld
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import Status
from backendai.domain.serving.auditing import SERVING_CHECKS
from backendai.domain.serving.models import Endpoint, Replica, ScalingRecord, State
from backendai.domain.serving.services.endpoints import create_endpoint
from backendai.domain.serving.services.readings import ProxyCounts, ReplicaReading, farewell, record
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops import loops
from backendai.portal.loops.loops import run_serving
from tests.factories import make_agent, make_group, make_image, report_of


def a_revision(**over: Any) -> RevisionSpec:
    usual = {"image": "python", "command": "serve --port 8000", "resources": {"cpu": 1, "mem": "512m"}}
    return RevisionSpec(**(usual | over))


def make_endpoint(owner: User, name: str = "chat", *, revision: RevisionSpec | None = None, **over: Any) -> Endpoint:
    """Return an endpoint of this owner, created as a person would create it."""
    make_group()
    make_image()
    return create_endpoint(owner, EndpointSpec(name, revision or a_revision(), **over))


@dataclass
class World:
    """Time passes in steps of two seconds. ``silent`` replicas are ready no probe, by number; ``load`` is counted;
    ``opened``: requests of each replica, by proxy."""

    owner: User
    cpu: int = 8
    now: datetime = field(default_factory=timezone.now)
    silent: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)  # revisions whose program ends at once
    open: int = 0
    each_second: float = 0.0
    proxies: list[str] = field(default_factory=lambda: ["one"])
    uptime: float = 100.0
    requests: float = 0.0
    busy: float = 0.0
    knows_drains: bool = True
    opened: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_group()
        make_image()
        self.agent = make_agent("a1", cpu=self.cpu, mem="64g")

    def steps(self, number: int = 1) -> None:
        """Let so many steps pass."""
        for _ in range(number):
            self.now += timedelta(seconds=2)
            self.uptime += 2
            type(self.agent).objects.exclude(status="LOST").update(last_seen_at=self.now)
            self._proxies_report()
            run_serving(self.now)
            loops.run_pass(self.now)
            self._node_works()
            assert run_checks(AuditWorld(self.now), list(SERVING_CHECKS)) == {}

    def until(self, condition: Any, most: int = 200) -> None:
        """Let steps pass until something is so."""
        for _ in range(most):
            if condition():
                return
            self.steps()
        raise AssertionError(f"it did not come about; records: {codes_of()}")

    def farewell(self, proxy: str) -> None:
        """Let this proxy stop in good order."""
        self.proxies.remove(proxy)
        farewell(proxy, "boot", now=self.now)

    def _node_works(self) -> None:
        for kernel in Kernel.objects.filter(status__in=[Status.SCHEDULED, Status.TERMINATING]).select_related("agent"):
            replica = Replica.objects.filter(session=kernel.session_id).select_related("revision").first()
            if kernel.status == Status.TERMINATING:
                kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=143), now=self.now)
                continue
            kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING, container_id="c"), now=self.now)
            if replica and replica.revision.number in self.broken:
                ended = report_of(kernel, KernelState.TERMINATED, exit_code=1, reason="exited")
                kernel_reported(kernel.agent, ended, now=self.now)

    def _proxies_report(self) -> None:
        endpoints = list(Endpoint.objects.all())
        self.requests += 2 * self.each_second
        self.busy += 2 * self.open
        replicas = Replica.objects.live().filter(state__in=[State.LOADING, State.READY, State.DRAINING])
        for number, proxy in enumerate(self.proxies):
            sights = [
                ReplicaReading(one.pk, one.number not in self.silent, "503 of /health", open=self.opened.get(proxy, 0))
                for one in replicas
            ]
            share = self.open if number == 0 else 0
            tallies = [
                ProxyCounts(
                    one.pk,
                    one.version if self.knows_drains else 0,
                    requests=int(self.requests),
                    completions=int(self.requests),
                    busy_seconds=self.busy if number == 0 else 0.0,
                    open=share,
                )
                for one in endpoints
            ]
            record(proxy, "boot", self.uptime, tallies, sights, now=self.now)


def codes_of(endpoint: Endpoint | None = None) -> list[str]:
    rows = ScalingRecord.objects.filter(endpoint=endpoint) if endpoint else ScalingRecord.objects.all()
    return list(rows.order_by("pk").values_list("code", flat=True))


def states_of(endpoint: Endpoint) -> list[tuple[int, int, str]]:
    """Return number, revision and state of the replicas that have not ended."""
    rows = endpoint.replicas.live().order_by("number")
    return list(rows.values_list("number", "revision__number", "state"))
