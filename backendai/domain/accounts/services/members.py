"""Adds, removes and changes the members of projects."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Membership, Project, User
from backendai.domain.accounts.roles import Action, check_project
from backendai.domain.accounts.rules import check_member_role, clean_email
from backendai.domain.activity.access_notices import notify_of_access, withdraw_access
from backendai.domain.activity.services import audit


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
            notify_of_role(actor, project, [user], role)
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
        withdraw_access(("project", project.pk), [user.pk])


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
            notify_of_role(actor, project, [user], role)
    return membership


def notify_of_role(actor: User, project: Project, users: Sequence[User], role: str) -> None:
    """Notify these people, other than the actor, of their role in the project, in the caller's transaction."""
    text = Message(
        "{who} made you {role} of the project {name}.",
        who=actor.email,
        role=Message(Membership.Role(role).label),
        name=project.name,
    )
    people = [user.pk for user in users if user.pk != actor.pk]
    notify_of_access(people, ("project", project.pk), project.name, text, now=timezone.now())


def _audit(actor: User, action: str, project: Project, user: User, **details: object) -> None:
    audit(actor.pk, action, "project", [project.pk], name=project.name, email=user.email, **details)
