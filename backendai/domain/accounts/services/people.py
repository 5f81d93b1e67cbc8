"""Creates people and projects for commands and first starts."""

from __future__ import annotations

from django.db import transaction

from backendai.domain.accounts.models import Domain, KeyPair, Membership, Project, User
from backendai.domain.activity.services import audit


def create_person(
    email: str, *, password: str | None, project: Project, role: str = User.Role.USER, full_name: str = ""
) -> User:
    """Create a user with a key pair, as a member of the project."""
    with transaction.atomic():
        user = User.objects.create_user(
            email, password, role=role, full_name=full_name, domain=project.domain, is_superuser=role == "superadmin"
        )
        KeyPair.objects.create(user=user)
        Membership.objects.create(user=user, project=project)
        audit(None, "user.create", "user", [user.pk], email=user.email, role=str(role))
    return user


def get_or_create_project(domain_name: str, project_name: str) -> Project:
    """Return the project; creates it and its domain if they are missing."""
    domain, _ = Domain.objects.get_or_create(name=domain_name)
    project, _ = Project.objects.get_or_create(domain=domain, name=project_name)
    return project
