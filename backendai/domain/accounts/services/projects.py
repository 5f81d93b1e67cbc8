"""Creates, changes and deletes projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import (
    Domain,
    Invitation,
    Membership,
    PolicyDefault,
    Project,
    ResourcePolicy,
    User,
)
from backendai.domain.accounts.references import refuse_while_used
from backendai.domain.accounts.roles import Action, check_domain, check_project
from backendai.domain.accounts.rules import clean_name
from backendai.domain.accounts.services.grants import check_policy_of_project, check_weight, default_policy
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit

_NEEDS = {
    "name": Action.CHANGE_PROJECT,
    "is_active": Action.CHANGE_PROJECT,
    "policy": Action.SET_PROJECT_POLICY,
    "share_weight": Action.SET_PROJECT_WEIGHT,
}

GOES_WITH_PROJECT = (Membership, Invitation)


def create_project(actor: User, domain: Domain, name: str, *, policy: ResourcePolicy | None = None) -> Project:
    """Create a project in the domain. Without a policy it gets the default one, if there is one."""
    check_domain(actor, Action.CREATE_PROJECT, domain)
    policy = policy or default_policy(PolicyDefault.Holder.PROJECT)
    if policy is not None:
        check_policy_of_project(actor, policy, domain)
    with transaction.atomic():
        project = Project(domain=domain, name=clean_name(name), policy=policy)
        _save(project)
        audit(actor.pk, "project.create", "project", [project.pk], name=project.name, domain=domain.name)
    return project


def change_project(actor: User, project: Project, wishes: Mapping[str, Any]) -> Project:
    """Change ``name``, ``is_active``, ``policy`` or ``share_weight`` of a project, and return it.

    Unchanged values need no permission. An inactive project allows no new sessions; running ones continue.
    """
    with transaction.atomic():
        rows = Project.objects.select_for_update(of=("self",)).select_related("domain__policy", "policy")
        project = rows.get(pk=project.pk)
        new = {name: clean_name(value) if name == "name" else value for name, value in wishes.items()}
        changes = {name: [getattr(project, name), new[name]] for name in new if new[name] != getattr(project, name)}
        for name in changes:
            check_project(actor, _NEEDS[name], project)
            setattr(project, name, new[name])
        if "policy" in changes:
            check_policy_of_project(actor, project.policy, project.domain)
        if "share_weight" in changes:
            check_weight(project.share_weight)
        if changes:
            _save(project, list(changes))
            told = {name: [plain_value(value) for value in values] for name, values in changes.items()}
            audit(actor.pk, "project.change", "project", [project.pk], name=project.name, changes=told)
    return project


def delete_project(actor: User, project: Project) -> None:
    """Delete a project that was never used, with its memberships and invitations.

    Raises Conflict that counts its uses.
    """
    check_project(actor, Action.DELETE_PROJECT, project)
    with transaction.atomic():
        project = Project.objects.select_for_update().get(pk=project.pk)
        refuse_while_used(project, "project", leaving_out=GOES_WITH_PROJECT)
        audit(actor.pk, "project.delete", "project", [project.pk], name=project.name)
        project.delete()


def _save(project: Project, changed: list[str] | None = None) -> None:
    try:
        with transaction.atomic():
            project.save(update_fields=changed)
    except IntegrityError as error:
        text = Message("The domain already has a project {project}.", project=repr(project.name))
        raise Conflict(text, field="name", code="name-taken") from error
