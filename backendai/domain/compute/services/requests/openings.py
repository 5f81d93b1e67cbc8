"""Reads the objects that a user can choose for a launch: projects, key pair, resource groups, policies.

The rows are read once per request, for the form, its amounts, the validator and the preview.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from backendai.base.db.per_request import once
from backendai.domain.accounts.acting import projects_to_act_in
from backendai.domain.accounts.models import KeyPair, Project, User
from backendai.domain.accounts.policies.applicable import Limited, limits_of_launch
from backendai.domain.cluster.models import ResourceGroup


def _projects(actor: Any, owner: Any) -> QuerySet[Any, Any]:
    return projects_to_act_in(actor, owner).select_related("domain")


def _groups(owner: Any) -> QuerySet[Any, Any]:
    return ResourceGroup.objects.visible_to(owner).filter(is_active=True)


def _key_pair(owner: Any) -> QuerySet[Any, Any]:
    return KeyPair.objects.visible_to(owner).main_first()[:1]


def projects_open(owner: User, actor: User) -> Sequence[Project]:
    """Return the owner's projects where the actor can launch sessions for the owner. Sorted by name, with domains
    loaded."""
    return once(("projects-open", owner.pk, actor.pk), lambda: list(_projects(actor, owner)))


def groups_open(owner: User) -> Sequence[ResourceGroup]:
    """Return the active resource groups that the owner can use through a project or a key pair. Sorted by name."""
    return once(("groups-open", owner.pk), lambda: list(_groups(owner)))


def key_pair_of(owner: User) -> KeyPair | None:
    """Return the key pair to which launches of the owner count by default; None if there is none."""
    return once(("key-pair", owner.pk), lambda: next(iter(_key_pair(owner)), None))


def limits_on(owner: User, project: Project, key_pair: KeyPair | None) -> list[Limited]:
    """Return the holders of a launch that have a policy, the narrowest first."""
    holders = (owner.pk, project.pk, key_pair and key_pair.pk)
    return once(("limits-on", *holders), lambda: limits_of_launch(owner, project, key_pair))
