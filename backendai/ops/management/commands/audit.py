"""``manage.py audit``: runs the data checks of all apps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import docker
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone
from docker.errors import DockerException

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.loop.machine import boot_id
from backendai.base.core.command_help import DJANGOS_OWN
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.auditing import CHECKS as OF_SESSIONS
from backendai.domain.compute.auditing import Check, ObservedContainer, World, violations_of
from backendai.domain.pipelines.auditing import RUN_CHECKS
from backendai.domain.serving.auditing import SERVING_CHECKS
from backendai.ops.run.engine import engine_address

CHECKS: dict[str, Check] = OF_SESSIONS | SERVING_CHECKS | RUN_CHECKS


class Command(BaseCommand):
    help = "Check every invariant against the database, and against the container engine of this machine."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []  # they load every page, which takes as long as the rest

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-engine", action="store_true", help="check the database only")

    def handle(self, *args: Any, **options: Any) -> None:
        engine = None if options["no_engine"] else containers(settings.DEPLOYMENT)
        if engine is None:
            self.stdout.write("container engine: not asked")
        found = run_checks(World(timezone.now(), engine, agents_of_engine()))
        for name, check in CHECKS.items():
            mark = "VIOLATED" if name in found else "ok"
            summary = (check.__doc__ or "").split(": ", 1)[-1].splitlines()[0]
            self.stdout.write(f"{name}  {mark:8}  {summary}")
            for violation in found.get(name, []):
                self.stdout.write(f"      {violation}")
        if found:
            raise SystemExit(1)


def agents_of_engine() -> list[UUID]:
    """Return the ids of agents that run containers on this machine.

    Kernels of other machines, and native processes, are no containers of its engine."""
    return list(Agent.objects.filter(backend=DockerBackend.name, boot_id=boot_id()).values_list("pk", flat=True))


def containers(deployment: str) -> list[ObservedContainer] | None:
    """Return the containers of this deployment on this machine's engine; None if it does not answer."""
    try:
        client = docker.APIClient(base_url=engine_address(), timeout=10)
        label = [f"backendai.deployment={deployment}", "backendai.kernel"]
        rows = client.containers(all=True, filters={"label": label})
    except DockerException:
        return None
    return [
        ObservedContainer(
            UUID(row["Labels"]["backendai.kernel"]),
            int(row["Labels"]["backendai.generation"]),
            row["State"] == "running",
        )
        for row in rows
    ]


def run_checks(world: World, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the violations by check, without checks that found none. With ``names`` only these checks run."""
    return violations_of(CHECKS, world, names)
