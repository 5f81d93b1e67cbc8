"""Giving a waiting session another priority."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F

from backendai.accounts.acting import both_names
from backendai.accounts.models import KeyPair, User
from backendai.accounts.policies import limits_of_launch
from backendai.activity.services import audit
from backendai.compute.models import ComputeSession
from backendai.compute.services.check_wishes import check_priority
from backendai.compute.services.moves import tell
from backendai.compute.status import Status
from backendai.core.errors import Conflict
from backendai.wire.broker import hint_on_commit
from backendai.wire.queues import CONTROL_QUEUE


def set_priority(session: ComputeSession, user: User, priority: int, *, now: datetime) -> None:
    """Give a waiting session, which the user may see, another priority; the scheduler looks at its group at once.

    Raises UserError when there is no such priority, or the policies that hold for the session allow less, whoever
    asks; Conflict when it waits no longer.
    """
    pair = KeyPair.objects.filter(pk=session.access_key).first() if session.access_key else None
    check_priority(priority, limits_of_launch(session.owner, session.project, pair))
    with transaction.atomic():
        waiting = ComputeSession.objects.filter(pk=session.pk, status=Status.PENDING)
        before = waiting.select_for_update(no_key=True).values_list("priority", flat=True).first()
        if before is None:
            raise Conflict("It does not wait any more: its priority means nothing now.", code="not-pending")
        if before == priority:
            return
        waiting.update(priority=priority, version=F("version") + 1, changed_at=now)
        changes = {"priority": [before, priority]}
        names = both_names(user, session.owner)
        audit(user.pk, "session.set-priority", "session", [session.pk], name=session.name, changes=changes, **names)
        tell([session.pk])
        hint_on_commit("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE)
