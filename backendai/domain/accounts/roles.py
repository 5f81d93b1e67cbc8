"""Decides which role may do which action to whom, by one table.

A superadmin has rights everywhere, a domain admin in one domain, a project admin over the members of one project.
Nobody can change a person of a higher role, or grant a right that they lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto

from backendai.base.core.errors import NotAllowed
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, Membership, Project, User
from backendai.domain.activity.refusals import note_refusal


class Rank(IntEnum):
    """The rank of a user in a place; higher ranks have more rights."""

    NOBODY = 0
    PROJECT_ADMIN = 1
    DOMAIN_ADMIN = 2
    SUPERADMIN = 3


class Action(StrEnum):
    """The actions on other people, projects and domains; ``_PHRASES`` has their texts."""

    CREATE_USER = auto()
    CHANGE_USER = auto()
    SET_ROLE = auto()
    SET_USER_POLICY = auto()
    SET_USER_WEIGHT = auto()
    MOVE_USER = auto()
    SET_ACTIVE = auto()
    SET_PASSWORD = auto()
    PURGE_USER = auto()
    CREATE_PROJECT = auto()
    CHANGE_PROJECT = auto()
    SET_PROJECT_POLICY = auto()
    SET_PROJECT_WEIGHT = auto()
    DELETE_PROJECT = auto()
    CHOOSE_MEMBERS = auto()
    INVITE = auto()
    INVITE_WITH_POLICY = auto()
    CREATE_DOMAIN = auto()
    CHANGE_DOMAIN = auto()
    DELETE_DOMAIN = auto()
    SET_DOTFILES = auto()


# Filled into "You may not …".
_PHRASES: dict[Action, Message] = {
    Action.CREATE_USER: Message("create users"),
    Action.CHANGE_USER: Message("change this user"),
    Action.SET_ROLE: Message("change this user's role"),
    Action.SET_USER_POLICY: Message("change this user's policy"),
    Action.SET_USER_WEIGHT: Message("change this user's share weight"),
    Action.MOVE_USER: Message("move this user to another domain"),
    Action.SET_ACTIVE: Message("activate or deactivate this user"),
    Action.SET_PASSWORD: Message("set this user's password"),
    Action.PURGE_USER: Message("purge this user"),
    Action.CREATE_PROJECT: Message("create projects"),
    Action.CHANGE_PROJECT: Message("change this project"),
    Action.SET_PROJECT_POLICY: Message("change this project's policy"),
    Action.SET_PROJECT_WEIGHT: Message("change this project's share weight"),
    Action.DELETE_PROJECT: Message("delete this project"),
    Action.CHOOSE_MEMBERS: Message("choose the members of this project"),
    Action.INVITE: Message("invite people to this project"),
    Action.INVITE_WITH_POLICY: Message("give a policy with an invitation"),
    Action.CREATE_DOMAIN: Message("create domains"),
    Action.CHANGE_DOMAIN: Message("change this domain"),
    Action.DELETE_DOMAIN: Message("delete this domain"),
    Action.SET_DOTFILES: Message("change the files that sessions find here"),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The least rank that an action needs, and the least to do it to oneself (None: nobody may)."""

    least: Rank
    to_oneself: Rank | None = Rank.NOBODY


RULES: dict[Action, Rule] = {
    Action.CREATE_USER: Rule(Rank.DOMAIN_ADMIN),
    Action.CHANGE_USER: Rule(Rank.DOMAIN_ADMIN),
    Action.SET_ROLE: Rule(Rank.DOMAIN_ADMIN, to_oneself=None),
    Action.SET_USER_POLICY: Rule(Rank.DOMAIN_ADMIN, to_oneself=Rank.SUPERADMIN),
    Action.SET_USER_WEIGHT: Rule(Rank.SUPERADMIN),
    Action.MOVE_USER: Rule(Rank.SUPERADMIN),
    Action.SET_ACTIVE: Rule(Rank.DOMAIN_ADMIN, to_oneself=None),
    Action.SET_PASSWORD: Rule(Rank.DOMAIN_ADMIN, to_oneself=None),
    Action.PURGE_USER: Rule(Rank.SUPERADMIN, to_oneself=None),
    Action.CREATE_PROJECT: Rule(Rank.DOMAIN_ADMIN),
    Action.CHANGE_PROJECT: Rule(Rank.DOMAIN_ADMIN),
    Action.SET_PROJECT_POLICY: Rule(Rank.DOMAIN_ADMIN),
    Action.SET_PROJECT_WEIGHT: Rule(Rank.SUPERADMIN),
    Action.DELETE_PROJECT: Rule(Rank.DOMAIN_ADMIN),
    Action.CHOOSE_MEMBERS: Rule(Rank.PROJECT_ADMIN),
    Action.INVITE: Rule(Rank.PROJECT_ADMIN),
    Action.INVITE_WITH_POLICY: Rule(Rank.DOMAIN_ADMIN),
    Action.CREATE_DOMAIN: Rule(Rank.SUPERADMIN),
    Action.CHANGE_DOMAIN: Rule(Rank.SUPERADMIN),
    Action.DELETE_DOMAIN: Rule(Rank.SUPERADMIN),
    Action.SET_DOTFILES: Rule(Rank.DOMAIN_ADMIN),
}
_RANKS = {User.Role.SUPERADMIN: Rank.SUPERADMIN, User.Role.ADMIN: Rank.DOMAIN_ADMIN, User.Role.USER: Rank.NOBODY}


def check_user(actor: User, action: Action, user: User) -> None:
    """Raise NotAllowed unless the actor may do this action to this user."""
    _refuse(_against_user(actor, action, user), actor, action, "user", user.pk)


def check_project(actor: User, action: Action, project: Project) -> None:
    """Raise NotAllowed unless the actor may do this action to this project; at most one query."""
    _refuse(_against(rank_in_project(actor, project), action), actor, action, "project", project.pk)


def check_domain(actor: User, action: Action, domain: Domain | None) -> None:
    """Raise NotAllowed unless the actor may do this action in this domain. None: the action belongs to no domain."""
    _refuse(_against_domain(actor, action, domain), actor, action, "domain", domain.pk if domain else "")


def check_grant(actor: User, role: str) -> None:
    """Raise NotAllowed for a role above the actor's own, and ValueError for an unknown role."""
    if _RANKS[User.Role(role)] > rank_of(actor):
        text = Message("You cannot grant the role {role}: it is above your own.", role=User.Role(role).label)
        refusal = NotAllowed(text, field="role", code="above-own-role")
        note_refusal(actor.pk, "grant-role", "user", role=role, code=refusal.code)
        raise refusal


def may_user(actor: User, action: Action, user: User) -> bool:
    """Return whether ``check_user`` would pass. Pages use it to decide what to show."""
    return _against_user(actor, action, user) is None


def may_project(actor: User, action: Action, project: Project) -> bool:
    """Return whether ``check_project`` would pass."""
    return _against(rank_in_project(actor, project), action) is None


def may_domain(actor: User, action: Action, domain: Domain | None) -> bool:
    """Return whether ``check_domain`` would pass."""
    return _against_domain(actor, action, domain) is None


def rules_people(user: User) -> bool:
    """Return whether the user is an administrator of people: a superadmin, or a domain admin with a domain."""
    return user.is_superadmin or (user.role == User.Role.ADMIN and user.domain_id is not None)


def chooses_members(user: User) -> bool:
    """Return whether there is a project whose members the user may choose. One query per user object."""
    if rules_people(user):
        return True
    known: bool | None = user.__dict__.get("_chooses_members")
    if known is None:
        known = user.memberships.filter(role=Membership.Role.ADMIN).exists()
        user.__dict__["_chooses_members"] = known
    return known


def rank_of(user: User) -> Rank:
    """Return the highest rank of the user, not counting the role in projects."""
    return _RANKS[User.Role(user.role)]


def rank_in_domain(user: User, domain_id: int | None) -> Rank:
    """Return the user's rank in a domain. With None only superadmins have a rank."""
    rank = rank_of(user)
    return rank if rank == Rank.SUPERADMIN or (domain_id is not None and user.domain_id == domain_id) else Rank.NOBODY


def rank_in_project(user: User, project: Project) -> Rank:
    """Return the user's rank in a project. One query unless the rank in its domain suffices."""
    rank = rank_in_domain(user, project.domain_id)
    if rank >= Rank.DOMAIN_ADMIN:
        return rank
    admins = Membership.objects.filter(user=user, project=project, role=Membership.Role.ADMIN)
    return Rank.PROJECT_ADMIN if admins.exists() else Rank.NOBODY


def _refuse(refusal: NotAllowed | None, actor: User, action: Action, target_type: str, target_id: object) -> None:
    """Raise the refusal if there is one, and record it in the audit log."""
    if refusal is not None:
        note_refusal(actor.pk, action.name.lower().replace("_", "-"), target_type, target_id, code=refusal.code)
        raise refusal


def _against_user(actor: User, action: Action, user: User) -> NotAllowed | None:
    rule = RULES[action]
    if user.pk == actor.pk:
        if rule.to_oneself is None or rank_of(actor) < rule.to_oneself:
            text = Message(
                "You may not {action} when the user is you. Ask another administrator.", action=_PHRASES[action]
            )
            return NotAllowed(text, code="not-oneself")
    elif rank_of(user) > rank_of(actor):
        return NotAllowed(
            "You may not {action}: the role {role} is above yours.",
            action=_PHRASES[action],
            role=user.get_role_display(),
            code="stands-above",
        )
    return _against(rank_in_domain(actor, user.domain_id), action)


def _against_domain(actor: User, action: Action, domain: Domain | None) -> NotAllowed | None:
    return _against(rank_in_domain(actor, domain.pk if domain else None), action)


def _against(rank: Rank, action: Action) -> NotAllowed | None:
    return (
        NotAllowed("You may not {action}.", action=_PHRASES[action], code="not-allowed")
        if rank < RULES[action].least
        else None
    )
