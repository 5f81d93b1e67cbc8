"""Queries for sessions and kernels in answers.

Of related rows an answer has only the name. The query returns it as a column, at half the cost of the rows.
"""

from __future__ import annotations

from typing import Any

from django.db.models import F, Prefetch, QuerySet

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel

_NAMES = {
    "owner_email": F("owner__email"),
    "launched_by_email": F("launched_by__email"),
    "project_name": F("project__name"),
    "resource_group_name": F("resource_group__name"),
    "image_name": F("image__name"),
}


def shown_sessions(user: User) -> QuerySet[Any]:
    """Return the visible sessions with ``shown_kernels``, ``shown_mounts``, ``shown_depends_on``; four queries."""
    kernels = Prefetch("kernels", shown_kernels(Kernel.objects.all()), to_attr="shown_kernels")
    mounts = Prefetch("mounts", to_attr="shown_mounts")
    others = Prefetch("depends_on", _others(), to_attr="shown_depends_on")
    return ComputeSession.objects.visible_to(user).annotate(**_NAMES).prefetch_related(kernels, mounts, others)


def shown_kernels(kernels: QuerySet[Kernel]) -> QuerySet[Any]:
    """Return these kernels with the names of their agents and own images."""
    return kernels.annotate(agent_name=F("agent__name"), own_image=F("image__name"))


def shown_at_launch(session: Any, kernels: list[Any]) -> ComputeSession:
    """Add the attributes that ``shown_sessions`` queries to a new session, and return it."""
    session.owner_email, session.project_name = session.owner.email, session.project.name
    session.launched_by_email = session.launched_by.email if session.launched_by else None
    session.resource_group_name, session.image_name = session.resource_group.name, session.image.name
    session.shown_kernels = kernels
    session.shown_depends_on = list(_others().filter(dependents=session)) if session.spec.get("depends_on") else []
    session.shown_mounts = list(session.mounts.all()) if session.mount_count else []
    for kernel in kernels:
        kernel.agent_name, kernel.own_image = None, kernel.image.name if kernel.image else None
    launched: ComputeSession = session
    return launched


def _others() -> QuerySet[ComputeSession]:
    return ComputeSession.objects.only("pk").order_by("created_at", "pk")
