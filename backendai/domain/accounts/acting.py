"""Decides for whom an administrator may launch sessions, and in which projects."""

from __future__ import annotations

from backendai.base.core.errors import NotFound
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.querysets import ProjectQuerySet, UserQuerySet
from backendai.domain.activity.refusals import note_refusal


def people_to_act_for(actor: User) -> UserQuerySet:
    """Return the active people for whom the actor may launch sessions.

    A superadmin: everybody. A domain admin: the people of the domain, except superadmins. Others: themselves.
    """
    people: UserQuerySet = User.objects.filter(is_active=True)
    if actor.role == User.Role.SUPERADMIN:
        return people
    if actor.role == User.Role.ADMIN and actor.domain_id:
        return people.filter(domain=actor.domain_id).exclude(role=User.Role.SUPERADMIN)
    return people.filter(pk=actor.pk)


def owner_named(actor: User, email: str, *, is_launch: bool = False) -> User:
    """Return the owner of a launch: the person with this address, or the actor if it is empty.

    Raises NotFound for an unknown address, and also for a person for whom the actor may not act. With ``is_launch`` the
    audit log records the refusal.
    """
    wanted = email.strip().lower()
    if not wanted or wanted == actor.email:
        return actor
    owner: User | None = people_to_act_for(actor).filter(email=wanted).first()
    if owner is None:
        if is_launch:
            note_refusal(actor.pk, "act-for", "user", wanted)
        text = Message("No user {email}, or you may not launch for them.", email=repr(email.strip()))
        raise NotFound(text, field="owner", code="unknown-owner")
    return owner


def projects_to_act_in(actor: User, owner: User) -> ProjectQuerySet:
    """Return the owner's projects in which the actor may start sessions for them: a domain admin only in the domain."""
    projects: ProjectQuerySet = Project.objects.usable_by(owner)
    if actor.pk == owner.pk or actor.role == User.Role.SUPERADMIN:
        return projects
    return projects.filter(domain=actor.domain_id)


def both_names(actor: User, owner: User) -> dict[str, str]:
    """Return the e-mail addresses of actor and owner for an audit entry; empty if they are the same person."""
    return {} if actor.pk == owner.pk else {"actor": actor.email, "owner": owner.email}
