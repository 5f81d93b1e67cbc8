"""Rows for tests, made through the services wherever there is one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from backendai.base.core.slots import Slots
from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.spec import SessionSpec

_numbers = itertools.count(1)


def make_group(name: str = "default", **over: Any) -> ResourceGroup:
    """Return the resource group, made when it is not there."""
    group, _ = ResourceGroup.objects.get_or_create(name=name, defaults={"is_default": name == "default"} | over)
    return group


def make_agent(
    name: str = "", *, cpu: Any = 4, mem: Any = "8g", group: ResourceGroup | None = None, **over: Any
) -> Agent:
    """Return an agent that has just been heard of."""
    name = name or f"agent-{next(_numbers)}"
    values = {
        "capacity": Slots.parse({"cpu": cpu, "mem": mem}).to_json(),
        "status": Agent.Status.ALIVE,
        "backend": "docker",
        "architecture": "x86_64",
        "gateway_url": "http://127.0.0.1:1",
        "last_seen_at": timezone.now(),
        "token_digest": f"digest-of-{name}",
    }
    return Agent.objects.create(name=name, resource_group=group or make_group(), **(values | over))


def make_image(name: str = "python", **over: Any) -> Image:
    """Return the image, made when it is not there."""
    values = {"reference": f"local/{name}:latest", "minimum": {"cpu": "0.1", "mem": str(64 * 2**20)}}
    image, _ = Image.objects.get_or_create(name=name, defaults=values | over)
    return image


def make_session(owner: User, **over: Any) -> ComputeSession:
    """Return a PENDING session of this owner, launched as a person would launch it."""
    make_group(over.get("resource_group") or "default")
    make_image(over.get("image", "python"))
    values = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "name": f"session-{next(_numbers)}"}
    return create_session(owner, SessionSpec(**(values | over)))


def make_sessions(owner: User, number: int, **over: Any) -> list[ComputeSession]:
    """Return PENDING sessions of this owner, one after the other: the first as launched, the others copies of its rows,
    for to launch hundreds takes seconds."""
    first = make_session(owner, **over)
    others = [copy_of(first, name=f"session-{next(_numbers)}", launch_id=uuid4()) for _ in range(number - 1)]
    ComputeSession.objects.bulk_create(others)
    for rows in (first.kernels.all(), first.records.all()):
        rows.model.objects.bulk_create(copy_of(row, session_id=other.pk) for other in others for row in rows)
    return [first, *others]


def copy_of(row: Any, **over: Any) -> Any:
    """Return a new row, not yet written, with these values and the other one's; a key and times of its own."""
    own = {"uid", "created_at", "updated_at"}
    fields = [one for one in row._meta.concrete_fields if not one.primary_key and one.name not in own]
    return type(row)(**{one.attname: getattr(row, one.attname) for one in fields} | over)


def make_running_session(owner: User, agent: Agent | None = None, **over: Any) -> ComputeSession:
    """Return a RUNNING session, placed and reported as the real parts would."""
    agent = agent or make_agent()
    session = make_session(owner, **over)
    place(session, agent)
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id=f"c{kernel.pk.hex[:10]}"))
    session.refresh_from_db()
    return session


def place(session: ComputeSession, agent: Agent) -> None:
    """Place every kernel of the session on the agent."""
    place_all([session], agent)
    session.refresh_from_db()


def place_all(sessions: Sequence[ComputeSession], agent: Agent) -> None:
    """Place every kernel of these sessions of one group on the agent."""
    kernels: dict[UUID, dict[UUID, UUID]] = {session.pk: {} for session in sessions}
    for pk, session in Kernel.objects.filter(session__in=sessions).values_list("pk", "session"):
        kernels[session][pk] = agent.pk
    assignments = [Assignment(session, on) for session, on in kernels.items()]
    place_sessions(sessions[0].resource_group_id, assignments, now=timezone.now())


def report_of(kernel: Any, state: KernelState, **over: Any) -> KernelReport:
    """Return what the kernel's node would say about it."""
    kernel.refresh_from_db()
    return KernelReport(kernel_id=kernel.pk, generation=kernel.generation, state=state, **over)
