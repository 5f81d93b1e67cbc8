"""Finds the rows that a request body names, among those the user may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Domain, Project, ResourcePolicy, User
from backendai.domain.cluster.models import ResourceGroup


def domain_named(user: User, name: str | None) -> Domain | None:
    """Return the domain of this name, or the user's own for an empty one. Raises UserError if it is not visible."""
    if not name:
        return user.domain
    domain: Domain | None = Domain.objects.visible_to(user).filter(name=name).select_related("policy").first()
    if domain is None:
        raise UserError("Domain not found.", field="domain", code="unknown-domain")
    return domain


def domains_named(names: list[str]) -> list[Domain]:
    """Return the domains of these names. Raises UserError for the first that does not exist."""
    found = {domain.name: domain for domain in Domain.objects.filter(name__in=names)}
    if unknown := sorted(set(names) - found.keys()):
        raise UserError("Domain {unknown} not found.", unknown=repr(unknown[0]), field="domains", code="unknown-domain")
    return list(found.values())


def group_named(name: str) -> ResourceGroup:
    """Return the resource group of this name. Raises UserError if it does not exist."""
    group: ResourceGroup | None = ResourceGroup.objects.filter(name=name).first()
    if group is None:
        raise UserError(
            "Resource group {name} not found.", name=repr(name), field="resource_group", code="unknown-resource-group"
        )
    return group


def policy_named(name: str | None) -> ResourcePolicy | None:
    """Return the policy of this name, or None for None. Raises UserError if it does not exist."""
    if name is None:
        return None
    policy: ResourcePolicy | None = ResourcePolicy.objects.filter(name=name).first()
    if policy is None:
        raise UserError("Policy not found.", field="policy", code="unknown-policy")
    return policy


def project_named(user: User, name: str, *, domain: Domain | None = None, field: str = "project") -> Project:
    """Return the project of this ID or name among those whose members the user manages.

    Raises UserError if there is not exactly one.
    """
    projects = Project.objects.managed_by(user).select_related("domain__policy")
    found: list[Project] = []
    try:
        found = list(projects.filter(pk=UUID(name)))
    except ValueError:
        named = projects.filter(name=name)
        found = list(named.filter(domain=domain) if domain else named)
    if len(found) != 1:
        text = "Several domains have a project of this name: enter its ID." if found else "Project not found."
        raise UserError(text, field=field, code="ambiguous-project" if found else "unknown-project")
    return found[0]


def with_rows(user: User, wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with the rows of ``domain`` and ``policy`` instead of their names."""
    changed = dict(wishes)
    if "domain" in changed:
        changed["domain"] = domain_named(user, changed["domain"]) if changed["domain"] else None
    if "policy" in changed:
        changed["policy"] = policy_named(changed["policy"])
    return changed
