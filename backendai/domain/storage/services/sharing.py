"""Sharing folders: by invitation with people, and with rights of their own for members of a project."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Membership, User
from backendai.domain.accounts.rules import clean_email
from backendai.domain.activity.access_notices import answer_access, notify_of_access, withdraw_access
from backendai.domain.activity.services import audit
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.permissions import require_rights, rights_of
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services.checks import check_choice, wrong_status
from backendai.domain.storage.status import FolderStatus, GrantKind, Rights


def people_to_share_with(actor: User, folder: Folder) -> QuerySet[User]:
    """Return the active people whom the actor may invite: of their own domain, of the folder's, and of their projects;
    superadmins invite anybody. Of others they learn nothing."""
    people: QuerySet[User] = User.objects.filter(is_active=True, purged_at=None).exclude(pk=actor.pk)
    if actor.is_superadmin:
        return people
    owner_domain = folder.user.domain_id if folder.user else folder.project.domain_id if folder.project else None
    domains = [domain for domain in (actor.domain_id, owner_domain) if domain is not None]
    projects = Membership.objects.filter(user=actor).order_by().values("project")
    return people.filter(Q(domain__in=domains) | Q(memberships__project__in=projects)).distinct()


def share_folder(folder: Folder, actor: User, email: str, rights: str, *, now: datetime) -> FolderGrant:
    """Return the invitation of a person by address; it counts once they accept it. Again it changes the rights of a
    grant that is there, accepted or not. Raises NotFound when there is no such person to be shared with."""
    folder = _shareable(folder, actor)
    rights = _granted(rights)
    email = clean_email(email)
    if email == actor.email:
        raise Conflict("You manage this folder yourself: name another person.", field="email", code="yourself")
    user = people_to_share_with(actor, folder).filter(email=email).first()
    if user is None:
        text = Message("No account with this address in your domain or your projects.")
        raise NotFound(text, field="email", code="unknown-person")
    if user.pk == folder.user_id:
        raise Conflict("The folder already belongs to them.", field="email", code="owner")
    with transaction.atomic():
        defaults = {"rights": rights, "kind": GrantKind.INVITATION, "created_by": actor, "created_at": now}
        grant, is_new = FolderGrant.objects.select_for_update().get_or_create(
            folder=folder, user=user, defaults=defaults
        )
        if is_new or grant.rights != rights:
            grant.rights = rights
            grant.save(update_fields=["rights"])
            _audit(actor, "folder.share", folder, user, rights=rights)
            _notify(actor, grant, folder, now)
    return grant


def accept_invitation(grant: FolderGrant, user: User, *, now: datetime) -> FolderGrant:
    """Return the user's invitation, which counts from now on; raises NotFound when it was taken back meanwhile."""
    with transaction.atomic():
        if not FolderGrant.objects.pending_for(user).filter(pk=grant.pk).update(accepted_at=now):
            raise _no_invitation()
        audit(user.pk, "folder.accept", "folder", [grant.folder_id], rights=grant.rights)
        answer_access(user.pk, grant.pk, now=now)
    grant.accepted_at = now
    return grant


def decline_invitation(grant: FolderGrant, user: User, *, now: datetime) -> None:
    """Delete the user's invitation; raises NotFound when it is there no more, or accepted."""
    with transaction.atomic():
        if not FolderGrant.objects.pending_for(user).filter(pk=grant.pk).delete()[0]:
            raise _no_invitation()
        audit(user.pk, "folder.decline", "folder", [grant.folder_id])
        withdraw_access(("folder", grant.folder_id), [user.pk])


def revoke_grant(folder: Folder, actor: User, user: User, *, now: datetime) -> None:
    """Take back the grant of a user, or the override of a member; what a running session mounts stays mounted."""
    folder = require_rights(actor, folder, MANAGE)
    with transaction.atomic():
        if not FolderGrant.objects.filter(folder=folder, user=user).delete()[0]:
            raise NotFound("The folder is not shared with them.", code="no-grant")
        _audit(actor, "folder.revoke", folder, user)
        withdraw_access(("folder", folder.pk), [user.pk])


def leave_folder(folder: Folder, user: User, *, now: datetime) -> None:
    """Give back what was shared with the user; raises Conflict for rights that nobody shared with them."""
    require_rights(user, folder, Rights.VIEW)
    with transaction.atomic():
        grants = FolderGrant.objects.filter(folder=folder, user=user, kind=GrantKind.INVITATION)
        if not grants.exclude(accepted_at=None).delete()[0]:
            text = Message("Nobody shared this folder with you: it is yours, your project's, or you administer it.")
            raise Conflict(text, code="not-shared")
        audit(user.pk, "folder.leave", "folder", [folder.pk], name=folder.name)
        withdraw_access(("folder", folder.pk), [user.pk])


def set_override(folder: Folder, actor: User, user: User, rights: str, *, now: datetime) -> FolderGrant:
    """Return the rights of one member of the folder's project, instead of what members have by default."""
    folder = _shareable(folder, actor)
    rights = check_choice(rights, Rights, "rights")
    if folder.project_id is None:
        raise UserError("Only a folder of a project has members.", field="email", code="not-of-project")
    if not Membership.objects.filter(project=folder.project_id, user=user).exists():
        raise NotFound("They are not members of the project.", field="email", code="no-member")
    if rights_of(user, folder) == MANAGE:  # a grant would count for nothing beside the role
        who = Message("You manage") if user.pk == actor.pk else Message("{user} manages", user=user.email)
        text = Message("{who} this folder as an administrator: name another member.", who=who)
        raise Conflict(text, field="email", code="manages")
    values = {"rights": rights, "kind": GrantKind.OVERRIDE, "accepted_at": None, "created_by": actor}
    with transaction.atomic():
        grant: FolderGrant
        grant, _ = FolderGrant.objects.update_or_create(
            folder=folder, user=user, defaults=values, create_defaults=values | {"created_at": now}
        )
        _audit(actor, "folder.override", folder, user, rights=rights)
        if rights == Rights.NONE:
            withdraw_access(("folder", folder.pk), [user.pk])
        else:
            _notify(actor, grant, folder, now)
    return grant


def _notify(actor: User, grant: FolderGrant, folder: Folder, now: datetime) -> None:
    """Notify the person of the grant of its rights, and of the invitation that waits for an answer."""
    waits = grant.kind == GrantKind.INVITATION and grant.accepted_at is None
    text = Message(
        "{who} shares the folder {name} with you: you {rights} its files.",
        who=actor.email,
        name=folder.name,
        rights=Message(Rights(grant.rights).label),
    )
    invitation = grant.pk if waits else 0
    notify_of_access([grant.user_id], ("folder", folder.pk), folder.name, text, now=now, invitation=invitation)


def _shareable(folder: Folder, actor: User) -> Folder:
    folder = require_rights(actor, folder, MANAGE)
    if folder.status != FolderStatus.READY:
        raise wrong_status(folder, "shared")
    return folder


def _granted(rights: str) -> str:
    if rights == Rights.NONE:
        raise UserError("Choose view or edit; to remove access, revoke the share.", field="rights", code="no-rights")
    return check_choice(rights, Rights, "rights")


def _audit(actor: User, action: str, folder: Folder, user: User, **details: str) -> None:
    audit(actor.pk, action, "folder", [folder.pk], name=folder.name, user=user.email, **details)


def _no_invitation() -> NotFound:
    return NotFound("Invitation not found: it was revoked, or answered before.", code="no-invitation")
