"""What the groups that a provider of identities names mean here: a domain, projects, a role."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from backendai.accounts.ends import end_credentials, refuse_to_lose_the_last_superadmin
from backendai.accounts.models import Domain, KeyPair, Membership, Project, User
from backendai.activity.services import audit
from backendai.core.errors import Conflict

EVERYBODY = "*"
_ROLES = (User.Role.USER, User.Role.ADMIN, User.Role.SUPERADMIN)  # the weakest first
_KEYS = {"domain", "project", "role"}


@dataclass(frozen=True, slots=True)
class Place:
    """What somebody's groups make of them: the domain they belong to (empty: none), its projects, and the role."""

    domain: str
    projects: frozenset[str]
    role: str


def wrong_mapping(mapping: Any) -> str:
    """Return what is wrong with a mapping of groups, empty when nothing is."""
    if not isinstance(mapping, Mapping) or not mapping:
        return 'It has to be JSON that says what each group means: {"group": {"domain": "…", "project": "…"}}.'
    for group, grant in mapping.items():
        if not isinstance(grant, Mapping) or not grant or not set(grant) <= _KEYS:
            return f"What group {group!r} means has to be an object with domain, project and role."
        if not all(isinstance(value, str) and value.strip() for value in grant.values()):
            return f"What group {group!r} means has to be said in texts that are not empty."
        if "project" in grant and "domain" not in grant:
            return f"Group {group!r} names a project, but not its domain."
        if grant.get("role", User.Role.USER) not in _ROLES:
            return f"Group {group!r} gives the role {grant['role']!r}: there are user, admin and superadmin."
        if grant.get("role") == User.Role.ADMIN and "domain" not in grant:
            return f"Group {group!r} makes domain admins, but names no domain."
    return ""


def place_of(groups: Collection[str], mapping: Mapping[str, Mapping[str, str]]) -> Place | None:
    """Return what these groups make of somebody, None when none of them means anything. A person belongs to one domain,
    that of the first group of the mapping; what other groups grant in other domains does not count."""
    grants = [grant for group, grant in mapping.items() if group == EVERYBODY or group in groups]
    if not grants:
        return None
    domain = next((grant["domain"] for grant in grants if "domain" in grant), "")
    counting = [grant for grant in grants if grant.get("domain", domain) == domain]
    projects = frozenset(grant["project"] for grant in counting if "project" in grant)
    role = max((grant.get("role", User.Role.USER) for grant in counting), key=lambda one: _ROLES.index(User.Role(one)))
    return Place(domain, projects, str(role))


def create_from_claims(email: str, full_name: str, place: Place, *, provider: str, now: datetime) -> User:
    """Return a new user without a password, in the place that the groups give. Raises IntegrityError when somebody has
    the address."""
    with transaction.atomic():
        user = User.objects.create_user(email, None, full_name=full_name[:128])
        KeyPair.objects.create(user=user)
        audit(None, "user.create", "user", [user.pk], email=user.email, provider=provider)
        follow_claims(user, place, {}, provider=provider, now=now)
    return user


def follow_claims(
    user: User, place: Place | None, mapping: Mapping[str, Mapping[str, str]], *, provider: str, now: datetime
) -> None:
    """Give the user the role, the domain and the projects that the groups say now, and take what they say no more:
    memberships in projects of the mapping, never those in others. None: nothing is left but the account. The last
    active superadmin stays one. A change of role or domain ends what let the user in before."""
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


def _move(user: User, place: Place | None) -> dict[str, list[str | None]]:
    """Write role and domain; return those that changed, each with what it was and is."""
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
    wanted = {(place.domain, project) for project in place.projects} if place else set()
    rows = Membership.objects.filter(user=user).select_related("project__domain")
    held = {(row.project.domain.name, row.project.name): row for row in rows}
    for domain_name, name in sorted(wanted - held.keys()):
        domain = Domain.objects.get(name=domain_name)
        project, _ = Project.objects.get_or_create(domain=domain, name=name)
        Membership.objects.create(user=user, project=project)
    lost = [place for place in held if place in named and place not in wanted]
    Membership.objects.filter(pk__in=[held[place].pk for place in lost]).delete()
    return ["/".join(place) for place in sorted(wanted - held.keys())], ["/".join(place) for place in sorted(lost)]
