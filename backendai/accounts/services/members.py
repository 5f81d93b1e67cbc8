"""Adds, removes and changes the members of projects."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from backendai.accounts.models import Membership, Project, User
from backendai.accounts.roles import Action, check_project
from backendai.accounts.rules import check_member_role, clean_email
from backendai.activity.services import audit
from backendai.core.errors import Conflict, NotFound
from backendai.core.messages import Message


def add_member(actor: User, project: Project, email: str, *, role: str = Membership.Role.MEMBER) -> Membership:
    """Add an active person of the project's domain to the project.

    Raises NotAllowed, NotFound if the domain has no such address, or Conflict if the person already belongs to it.
    """
    check_project(actor, Action.CHOOSE_MEMBERS, project)
    role = check_member_role(role)
    people = User.objects.filter(domain=project.domain_id, is_active=True, purged_at=None)
    user = people.filter(email=clean_email(email)).first()
    if user is None:
        text = Message("No account with this address in this domain. Send an invitation instead.")
        raise NotFound(text, field="email", code="unknown-person")
    try:
        with transaction.atomic():
            membership: Membership = Membership.objects.create(user=user, project=project, role=role)
            _audit(actor, "project.add-member", project, user, role=role)
    except IntegrityError as error:
        text = Message("They belong to this project already.")
        raise Conflict(text, field="email", code="already-member") from error
    return membership


def remove_member(actor: User, project: Project, user: User) -> None:
    """Remove a user from a project. The user can start no more sessions in it; running ones continue."""
    check_project(actor, Action.CHOOSE_MEMBERS, project)
    with transaction.atomic():
        deleted, _ = Membership.objects.filter(user=user, project=project).delete()
        if not deleted:
            raise NotFound("They do not belong to this project.", code="no-member")
        _audit(actor, "project.remove-member", project, user)


def set_member_role(actor: User, project: Project, user: User, role: str) -> Membership:
    """Change a member's role in the project."""
    check_project(actor, Action.CHOOSE_MEMBERS, project)
    role = check_member_role(role)
    with transaction.atomic():
        rows = Membership.objects.select_for_update(of=("self",)).select_related("user", "project")
        membership: Membership | None = rows.filter(user=user, project=project).first()
        if membership is None:
            raise NotFound("They do not belong to this project.", code="no-member")
        if membership.role != role:
            before, membership.role = membership.role, role
            membership.save(update_fields=["role"])
            _audit(actor, "project.set-member-role", project, user, changes={"role": [before, role]})
    return membership


def _audit(actor: User, action: str, project: Project, user: User, **details: object) -> None:
    audit(actor.pk, action, "project", [project.pk], name=project.name, email=user.email, **details)
