"""Maps the groups of an identity provider to a domain, projects and a role."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, Membership, User
from backendai.domain.accounts.services.create_user import add_user, get_or_create_project
from backendai.domain.accounts.sign_in.revocation import end_credentials, refuse_to_lose_the_last_superadmin
from backendai.domain.activity.services import audit

EVERYBODY = "*"
_ROLES = (User.Role.USER, User.Role.ADMIN, User.Role.SUPERADMIN)  # the weakest first
_PROJECT_ADMIN = "project-admin"
_KEYS = {"domain", "project", "role"}


@dataclass(frozen=True, slots=True)
class Place:
    """The domain (empty: none), the role in each project, and the platform role that a person's groups grant."""

    domain: str
    projects: Mapping[str, str]
    role: str


def wrong_mapping(mapping: Any) -> str:
    """Return the error of a mapping of groups, empty if it is valid."""
    if not isinstance(mapping, Mapping) or not mapping:
        return Message('Enter JSON that maps each group: {"group": {"domain": "…", "project": "…"}}.')
    for group, grant in mapping.items():
        if not isinstance(grant, Mapping) or not grant or not set(grant) <= _KEYS:
            return Message(
                "The entry of group {group} must be an object with domain, project and role.", group=repr(group)
            )
        if not all(isinstance(value, str) and value.strip() for value in grant.values()):
            return Message("The entry of group {group} must have texts that are not empty.", group=repr(group))
        if "project" in grant and "domain" not in grant:
            return Message("Group {group} names a project but no domain.", group=repr(group))
        if grant.get("role", User.Role.USER) not in (*_ROLES, _PROJECT_ADMIN):
            return Message(
                "Group {group} gives the role {grant}: use user, project-admin, admin or superadmin.",
                group=repr(group),
                grant=repr(grant["role"]),
            )
        if grant.get("role") == _PROJECT_ADMIN and "project" not in grant:
            return Message("Group {group} grants project admin but names no project.", group=repr(group))
        if grant.get("role") == User.Role.ADMIN and "domain" not in grant:
            return Message("Group {group} grants domain admin but names no domain.", group=repr(group))
    return ""


def place_of(groups: Collection[str], mapping: Mapping[str, Mapping[str, str]]) -> Place | None:
    """Return the domain, projects and role that these groups grant; None if the mapping names no group.

    A person belongs to one domain: the first that the mapping grants. Grants in other domains do not count.
    """
    grants = [grant for group, grant in mapping.items() if group == EVERYBODY or group in groups]
    if not grants:
        return None
    domain = next((grant["domain"] for grant in grants if "domain" in grant), "")
    counting = [grant for grant in grants if grant.get("domain", domain) == domain]
    projects: dict[str, str] = {}
    for grant in (one for one in counting if "project" in one):
        is_admin = grant.get("role") == _PROJECT_ADMIN or projects.get(grant["project"]) == Membership.Role.ADMIN
        projects[grant["project"]] = str(Membership.Role.ADMIN if is_admin else Membership.Role.MEMBER)
    roles = [grant["role"] for grant in counting if grant.get("role") in _ROLES]
    return Place(domain, projects, str(max(roles, key=_rank, default=User.Role.USER)))


def create_from_claims(email: str, full_name: str, place: Place, *, provider: str, now: datetime) -> User:
    """Create a user without a password, with the domain, projects and role of ``place``.

    Raises Conflict if the address is taken.
    """
    with transaction.atomic():
        user = add_user(email, None, role=User.Role.USER, full_name=full_name[:128])
        audit(None, "user.create", "user", [user.pk], email=user.email, provider=provider)
        follow_claims(user, place, {}, provider=provider, now=now)
    return user


def follow_claims(
    user: User, place: Place | None, mapping: Mapping[str, Mapping[str, str]], *, provider: str, now: datetime
) -> None:
    """Give the user the role, domain and projects of ``place``, and remove earlier ones.

    Removes memberships only in projects of the mapping. With ``place`` None the user keeps only the account. The last
    active superadmin stays superadmin. A change of role or domain ends the logins and tokens of the user.
    """
    with transaction.atomic():
        changes = _move(user, place)
        named = {(grant["domain"], grant["project"]) for grant in mapping.values() if "project" in grant}
        joined, left = _join_and_leave(user, place, named)
        if not (changes or joined or left):
            return
        audit(
            user.pk, "user.follow-groups", "user", [user.pk],
            email=user.email, provider=provider, changes=changes, joined=joined, left=left,
        )  # fmt: skip
        if changes:
            end_credentials(user, now=now)


def _rank(role: str) -> int:
    return _ROLES.index(User.Role(role))


def _move(user: User, place: Place | None) -> dict[str, list[str | None]]:
    """Save role and domain of the user. Returns the changed fields, each with its old and new value."""
    role = place.role if place else str(User.Role.USER)
    if user.role == User.Role.SUPERADMIN and role != user.role:
        try:
            refuse_to_lose_the_last_superadmin(user)
        except Conflict:
            role = user.role
    domain = user.domain
    if place and place.domain:
        domain, _ = Domain.objects.get_or_create(name=place.domain)
    before: dict[str, str | None] = {"role": user.role, "domain": user.domain.name if user.domain else None}
    after: dict[str, str | None] = {"role": role, "domain": domain.name if domain else None}
    changes = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    if changes:
        user.role, user.domain, user.is_superuser = role, domain, role == User.Role.SUPERADMIN
        user.save(update_fields=["role", "domain", "is_superuser"])
    return changes


def _join_and_leave(user: User, place: Place | None, named: Collection[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Update the user's memberships.

    Returns the projects that the user joined (or has a new role in), and those that the user left.
    """
    wanted = {(place.domain, project): role for project, role in place.projects.items()} if place else {}
    rows = Membership.objects.filter(user=user).select_related("project__domain")
    held = {(row.project.domain.name, row.project.name): row for row in rows}
    new = {where: role for where, role in wanted.items() if where not in held or held[where].role != role}
    for (domain_name, name), role in new.items():
        project = get_or_create_project(domain_name, name)
        Membership.objects.update_or_create(user=user, project=project, defaults={"role": role})
    lost = [where for where in held if where in named and where not in wanted]
    Membership.objects.filter(pk__in=[held[where].pk for where in lost]).delete()
    return sorted(f"{'/'.join(where)} as {role}" for where, role in new.items()), [
        "/".join(one) for one in sorted(lost)
    ]
