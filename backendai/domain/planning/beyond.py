"""Computes wait reasons of sessions that a pass leaves out, as it considers only a limited number."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db.models import Case, CharField, F, Q, Value, When

from backendai.base.core.messages import Message
from backendai.base.db.bulk import among
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.placing.waits import Waiting
from backendai.domain.planning import queue
from backendai.domain.planning.apply import data_of
from backendai.scheduler.gates import not_due, unmet
from backendai.scheduler.plan import Reason

BEYOND = "beyond-this-pass"
_NOT_DUE, _DEPENDS = "start-time-not-reached", "dependency-not-finished"


def waits_beyond(group: ResourceGroup, looked_at: Collection[UUID], now: datetime) -> list[Waiting]:
    """Return current wait reasons for pending sessions outside ``looked_at`` whose stored reason or position is
    outdated.

    At most ``MOST_PER_PASS`` sessions; the next call returns further ones. Sessions with a current reason are not read.
    Two queries.
    """
    code = Case(
        When(~queue.due(now), then=Value(_NOT_DUE)),
        When(queue.waits_for_others(), then=Value(_DEPENDS)),
        default=Value(BEYOND),
        output_field=CharField(),
    )
    rest = ComputeSession.objects.pending().filter(resource_group=group).exclude(pk__in=among(looked_at))
    wrong = rest.annotate(code=code).filter(~Q(status_reason=F("code")) | Q(queue_position__isnull=False))
    rows = list(wrong.order_by("pk").values_list("pk", "starts_at", "code")[: queue.MOST_PER_PASS])
    dependencies = queue.dependencies_of([pk for pk, _, name in rows if name == _DEPENDS])
    beyond = _beyond()
    waits = []
    for pk, starts_at, _ in rows:
        reason = not_due(starts_at, now) or unmet(dependencies.get(pk, ())) or beyond
        waits.append(Waiting(pk, reason.code, reason.message, data_of(reason), skipped=True))
    return waits


def _beyond() -> Reason:
    most = queue.MOST_PER_PASS
    message = Message(
        "More than {most} sessions are pending in this group; a pass considers {most}, the next of each owner first.",
        most=f"{most:,}",
    )
    return Reason(BEYOND, message, {"looked_at": most})
