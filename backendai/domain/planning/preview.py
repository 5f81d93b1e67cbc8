"""Previews a launch: adds the session to the front of its group's queue and decides a pass."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from backendai.base.core.errors import UserError
from backendai.domain.accounts.acting import owner_named
from backendai.domain.accounts.models import User
from backendai.domain.compute.services.requests.check import Checked, check_spec
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.planning.explain import Explanation, Verdict, foresee, other_groups
from backendai.domain.planning.pulls import pull_before
from backendai.domain.planning.queue import Newcomer, Row
from backendai.domain.planning.snapshot import read_for
from backendai.domain.planning.storage import storage_need
from backendai.scheduler.plan import Reason

_IMPOSSIBLE = frozenset({"bigger-than-any-agent", "slot-limit"})


def preview(
    user: User, spec: SessionSpec, *, now: datetime, copies: int = 1, checked: Checked | None = None
) -> Explanation:
    """Return the decision of the next pass about this launch: the agents on which it would start, or why it would wait.
    Writes nothing.

    ``copies``: the number of equal sessions; the result is about the first that does not start, and says how many
    start. ``checked``: the result of the launch's check, if already known. Raises the UserErrors of a launch, but
    impossible amounts are a result. Limits of pending sessions are not checked.
    """
    try:
        owner = owner_named(user, spec.owner)
        checked = checked or check_spec(owner, spec, actor=user)
    except UserError as error:
        if error.code not in _IMPOSSIBLE:
            raise
        reason = Reason(error.code, error.message, dict(error.details), never=True)
        return Explanation(now, spec.resource_group, Verdict.NEVER, error.message, reason)
    newcomers = [_newcomer(owner, checked, now) for _ in range(copies)]
    reading = read_for(newcomers, checked.group, now)
    ids = {each.row.id for each in newcomers}
    views = [each for each in reading.snapshot.pending if each.id in ids]
    others = partial(other_groups, checked.project, checked.group)
    found = foresee(reading, views, user, least=checked.image.minimum_slots, others=others)
    return _with_pull(found, newcomers, checked) if found.verdict == Verdict.STARTS_NOW else found


def _with_pull(found: Explanation, newcomers: Sequence[Newcomer], checked: Checked) -> Explanation:
    images = {role.image.pk: role.image for role in checked.roles}
    kernels = {pk: images[image_id] for each in newcomers for pk, _, image_id in each.kernels if image_id}
    return replace(found, pull=pull_before([(agent, kernels[pk]) for pk, agent in found.kernel_agents.items()]))


def _newcomer(owner: User, checked: Checked, now: datetime) -> Newcomer:
    spec = checked.spec
    row = Row(
        id=uuid.uuid4(),
        name=spec.name,
        created_at=now,
        priority=checked.priority,
        starts_at=spec.starts_at,
        image_id=checked.image.pk,
        attempts=0,
        session_type=spec.session_type,
        access_key=checked.access_key,
        owner_id=owner.pk,
        project_id=checked.project.pk,
        placement=spec.placement,
        launch_id=spec.launch_id,
        cluster_mode=spec.cluster_mode,
        batch_timeout=spec.batch_timeout,
        overtaken_since=None,
        project__domain_id=checked.project.domain_id,
        mount_count=len(checked.all_mounts),
        avoid_agents="[]",
        designated_agents=json.dumps(checked.agents),
    )
    kernels = tuple(
        (uuid.uuid4(), json.dumps(role.slots.to_json()), role.image.pk)
        for role in checked.roles
        for _ in range(role.count)
    )
    return Newcomer(
        row, kernels, tuple(checked.depends_on), storage_need(checked.all_mounts), spec.depends_when or "success"
    )
