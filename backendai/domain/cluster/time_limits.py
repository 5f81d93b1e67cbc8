"""The longest start of a kernel: the group's limit times the agent's slowness."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import DurationField, ExpressionWrapper, F, IntegerField
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast

from backendai.domain.cluster.models import ResourceGroup


def longest_start(group: ResourceGroup, slowness: int | None) -> timedelta:
    """Return how long a kernel may be created on an agent of this slowness; None: no agent yet."""
    return group.create_timeout * (slowness or 1)


def unpacking_time() -> timedelta:
    """Return how much longer the creation of a resumed kernel may take, as its stored home is unpacked."""
    return timedelta(seconds=settings.HOME_STORE_TIMEOUT)


def longest_start_of(group: str, agent: str) -> ExpressionWrapper[Combinable]:
    """Return the same as an SQL expression; ``group`` and ``agent`` are the paths of their rows."""
    slowness = Cast(f"{agent}__slowness", IntegerField())  # on SQLite no other integer multiplies a duration
    return ExpressionWrapper(F(f"{group}__create_timeout") * slowness, output_field=DurationField())
