"""Creates, revokes and accepts invitations to projects."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Invitation, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.roles import Action, check_project, may_project
from backendai.domain.accounts.rules import check_member_role, check_password, clean_email, clean_full_name
from backendai.domain.accounts.services.create_user import add_user
from backendai.domain.accounts.services.grants import check_policy_of_user
from backendai.domain.accounts.services.tokens import digest_of
from backendai.domain.activity.services import audit

VALID_FOR = timedelta(days=7)
_LONGEST = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Invitee:
    """The invited person and the role in the project. The policy is for a new account."""

    email: str
    full_name: str = ""
    role: str = Membership.Role.MEMBER
    policy: ResourcePolicy | None = None


def invite(
    actor: User, project: Project, invitee: Invitee, *, now: datetime, valid_for: timedelta = VALID_FOR
) -> tuple[Invitation, str]:
    """Create an invitation; return it and the secret of its link, which is shown once.

    Revokes earlier invitations of the same person to the same project.
    """
    check_project(actor, Action.INVITE, project)
    if invitee.policy is not None:
        check_project(actor, Action.INVITE_WITH_POLICY, project)
        check_policy_of_user(actor, invitee.policy)
    if not timedelta(0) < valid_for <= _LONGEST:
        raise UserError(
            "Enter a time longer than 0 and at most {days} days.", days=_LONGEST.days, field="days", code="invalid-date"
        )
    email, full_name = clean_email(invitee.email), clean_full_name(invitee.full_name)
    _check_project(project)
    _check_invitee(actor, email, project, has_policy=invitee.policy is not None)
    text, row = new_invitation(actor, project, email, now + valid_for, now)
    row.full_name, row.role, row.policy = full_name, check_member_role(invitee.role), invitee.policy
    try:
        with transaction.atomic():
            Invitation.objects.pending().filter(email=email, project=project).update(revoked_at=now, policy=None)
            row.save(force_insert=True)
            audit(actor.pk, "invitation.create", "invitation", [row.pk], email=email, project=project.name)
    except IntegrityError as error:
        text = Message("Somebody has just invited them to this project.")
        raise Conflict(text, field="email", code="invited-meanwhile") from error
    return row, text


def new_invitation(
    actor: User, project: Project, email: str, expires_at: datetime, now: datetime
) -> tuple[str, Invitation]:
    """Return the secret of a link, and its invitation that is not saved yet."""
    text = secrets.token_urlsafe(32)
    row = Invitation(
        email=email,
        project=project,
        digest=digest_of(text),
        invited_by=actor,
        created_at=now,
        expires_at=expires_at,
    )
    return text, row


def revoke_invitation(actor: User, invitation: Invitation, *, now: datetime) -> None:
    """Revoke an invitation. Raises Conflict if it is already accepted or revoked."""
    check_project(actor, Action.INVITE, invitation.project)
    with transaction.atomic():
        pending = Invitation.objects.pending().filter(pk=invitation.pk)
        if not pending.update(revoked_at=now, policy=None):
            raise Conflict("It was already accepted or revoked.", code="not-open")
        audit(actor.pk, "invitation.revoke", "invitation", [invitation.pk], email=invitation.email)


def open_invitation(digest: str, *, now: datetime) -> Invitation:
    """Return the open invitation whose link has this digest.

    Raises Conflict with the reason if it cannot be accepted.
    """
    rows = Invitation.objects.select_related("project__domain", "invited_by", "policy")
    invitation: Invitation | None = rows.filter(digest=digest).first()
    if invitation is None:
        raise Conflict("Invitation not found. Was the whole link copied?", code="no-invitation")
    state = invitation.state(now)
    if state == Invitation.State.ACCEPTED:
        raise Conflict("This invitation has already been accepted. Sign in instead.", code="invitation-accepted")
    if state == Invitation.State.EXPIRED:
        raise Conflict("This invitation has expired. Ask for a new one.", code="invitation-expired")
    inviter = invitation.invited_by
    if state == Invitation.State.REVOKED or inviter is None or not _may_still_invite(inviter, invitation.project):
        raise Conflict("This invitation was revoked. Ask for a new one.", code="invitation-revoked")
    _check_project(invitation.project)
    return invitation


def accept_as_new(digest: str, *, full_name: str, password: str, now: datetime) -> User:
    """Accept an invitation by creating a user who belongs to its project.

    Of several requests at once, one creates the account; the others raise Conflict.
    """
    with transaction.atomic():
        invitation = open_invitation(digest, now=now)
        name = clean_full_name(full_name)
        check_password(password, User(email=invitation.email, full_name=name))
        policy = invitation.policy
        _take(invitation, now)
        user = add_user(
            invitation.email,
            password,
            role=User.Role.USER,
            full_name=name,
            domain=invitation.project.domain,
            policy=policy,
        )
        _join(invitation, user)
        audit(user.pk, "user.create", "user", [user.pk], email=user.email, role=user.role, by="invitation")
    return user


def accept_as(user: User, digest: str, *, now: datetime) -> Project:
    """Add a signed-in user to the project of an invitation, and return the project.

    Raises NotAllowed if it was sent to another address.
    """
    with transaction.atomic():
        invitation = open_invitation(digest, now=now)
        if user.email != invitation.email:
            raise NotAllowed("This invitation is for another person.", code="not-invited")
        if user.domain_id != invitation.project.domain_id:
            raise Conflict("Your account belongs to another domain than the project.", code="other-domain")
        _take(invitation, now)
        _join(invitation, user)
    return invitation.project


def _may_still_invite(inviter: User, project: Project) -> bool:
    return inviter.is_active and may_project(inviter, Action.INVITE, project)


def _check_project(project: Project) -> None:
    if not (project.is_active and project.domain.is_active):
        raise Conflict(
            "Project {project} is not active.", project=repr(project.name), field="project", code="project-inactive"
        )


def _check_invitee(actor: User, email: str, project: Project, *, has_policy: bool) -> None:
    user = User.objects.filter(email=email).first()
    if user is None:
        return
    if user.domain_id != project.domain_id or not user.is_active:
        raise Conflict("This address cannot be invited to this project.", field="email", code="cannot-invite")
    if user.memberships.filter(project=project).exists():
        raise Conflict("They belong to this project already.", field="email", code="already-member")
    if user.pk == actor.pk:
        text = Message("You choose the members of this project: add yourself to them instead.")
        raise Conflict(text, field="email", code="yourself")
    if has_policy:
        text = Message("They have an account already: set the policy there.")
        raise UserError(text, field="policy", code="has-account")


def _take(invitation: Invitation, now: datetime) -> None:
    # The first writer has it; a policy is held by accounts from now on, and may be deleted when they lose it.
    pending = Invitation.objects.pending().filter(pk=invitation.pk, expires_at__gt=now)
    if not pending.update(accepted_at=now, policy=None):
        raise Conflict("This invitation has already been accepted. Sign in instead.", code="invitation-accepted")


def _join(invitation: Invitation, user: User) -> None:
    Membership.objects.get_or_create(user=user, project=invitation.project, defaults={"role": invitation.role})
    audit(
        user.pk,
        "invitation.accept",
        "invitation",
        [invitation.pk],
        email=user.email,
        project=invitation.project.name,
        role=invitation.role,
    )
