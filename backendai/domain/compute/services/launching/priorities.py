"""Changes the priority of a pending session."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.policies.applicable import limits_of_launch
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.requests.scheduling import check_priority
from backendai.domain.compute.services.status.moves import publish_changes
from backendai.domain.compute.status import Status


def set_priority(session: ComputeSession, user: User, priority: int) -> None:
    """Set the priority of a pending session, and schedule its group after commit. The caller checks that the user may
    see the session.

    Raises UserError for an invalid priority, one above a policy's maximum, or one above what an administrator allowed
    the owner; Conflict if the session is not pending.
    """
    pair = KeyPair.objects.filter(pk=session.access_key).first() if session.access_key else None
    check_priority(priority, limits_of_launch(session.owner, session.project, pair))
    with transaction.atomic():
        waiting = ComputeSession.objects.filter(pk=session.pk, status=Status.PENDING)
        found = waiting.select_for_update(no_key=True).values_list("priority", "owner_priority").first()
        if found is None:
            raise Conflict("The session is no longer pending, so its priority cannot change.", code="not-pending")
        before, most_before = found
        most = _most_for_owner(session, user, priority, before, most_before)
        if (before, most_before) == (priority, most):
            return
        waiting.update(priority=priority, owner_priority=most, version=F("version") + 1)
        changes: dict[str, list[int | None]] = {"priority": [before, priority]}
        if most != most_before:
            changes["owner_priority"] = [most_before, most]
        names = both_names(user, session.owner)
        audit(user.pk, "session.set-priority", "session", [session.pk], name=session.name, changes=changes, **names)
        publish_changes([session.pk])
        hint_on_commit("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE)


def front_priorities(sessions: Sequence[ComputeSession]) -> dict[UUID, int]:
    """Return by session id a priority above the other pending sessions of the session's group.

    The result is at least the session's own priority. It may exceed the maximum, which ``set_priority`` rejects. One
    query.
    """
    groups = {session.resource_group_id for session in sessions}
    others = ComputeSession.objects.pending().filter(resource_group__in=groups)
    others = others.exclude(pk__in=[session.pk for session in sessions]).order_by()
    highest = dict(others.values_list("resource_group").annotate(Max("priority")))
    return {session.pk: max(session.priority, highest.get(session.resource_group_id, -1) + 1) for session in sessions}


def _most_for_owner(session: ComputeSession, user: User, priority: int, before: int, most: int | None) -> int | None:
    """Return the highest priority that the owner can set; None if only policies limit it. An administrator who lowers a
    priority sets this limit. Raises UserError if the owner requests more."""
    if user.is_superadmin or user.pk != session.owner_id:
        return most if most is None and priority >= before else priority
    if most is not None and priority > most:
        raise UserError(
            "Priority {priority} requested, but an administrator lowered that of this session to {most}: "
            "its owner may set at most {most}.",
            priority=priority,
            most=most,
            field="priority",
            code="priority-too-high",
            wanted=priority,
            limit=most,
            scope="session",
        )
    return most
