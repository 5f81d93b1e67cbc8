"""Names in request bodies → the rows that the asker may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from backendai.accounts.models import Domain, Project, ResourcePolicy, User
from backendai.core.errors import UserError


def domain_named(asker: User, name: str | None) -> Domain | None:
    """Return the domain of this name; empty: the asker's own. Raises a UserError when there is none to be seen."""
    if not name:
        return asker.domain
    domain: Domain | None = Domain.objects.visible_to(asker).filter(name=name).select_related("policy").first()
    if domain is None:
        raise UserError("Domain not found.", field="domain", code="unknown-domain")
    return domain


def policy_named(name: str | None) -> ResourcePolicy | None:
    """Return the policy of this name, None for None; raises a UserError when there is none."""
    if name is None:
        return None
    policy: ResourcePolicy | None = ResourcePolicy.objects.filter(name=name).first()
    if policy is None:
        raise UserError("Policy not found.", field="policy", code="unknown-policy")
    return policy


def project_named(asker: User, name: str, *, domain: Domain | None = None, field: str = "project") -> Project:
    """Return the project of this id or name among those whose members the asker chooses; raises a UserError when there
    is none, or more than one."""
    projects = Project.objects.managed_by(asker).select_related("domain__policy")
    found: list[Project] = []
    try:
        found = list(projects.filter(pk=UUID(name)))
    except ValueError:
        named = projects.filter(name=name)
        found = list(named.filter(domain=domain) if domain else named)
    if len(found) != 1:
        text = "Several domains have a project of this name: write its id." if found else "There is no such project."
        raise UserError(text, field=field, code="ambiguous-project" if found else "unknown-project")
    return found[0]


def with_rows(asker: User, wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return wished changes with the rows of ``domain`` and ``policy`` instead of their names."""
    changed = dict(wishes)
    if "domain" in changed:
        changed["domain"] = domain_named(asker, changed["domain"]) if changed["domain"] else None
    if "policy" in changed:
        changed["policy"] = policy_named(changed["policy"])
    return changed
