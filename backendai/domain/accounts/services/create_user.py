"""Creates a user for an administrator, with or without a password."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, KeyPair, Membership, PolicyDefault, Project, ResourcePolicy, User
from backendai.domain.accounts.roles import Action, check_domain, check_grant
from backendai.domain.accounts.rules import check_password, clean_email, clean_full_name
from backendai.domain.accounts.services.grants import check_policy_of_user, default_policy
from backendai.domain.activity.services import audit


@dataclass(frozen=True, slots=True)
class NewUser:
    """The fields of a new user.

    Without a password the user cannot sign in by one. Only superadmins manage users without a domain.
    """

    email: str
    full_name: str = ""
    role: str = User.Role.USER
    domain: Domain | None = None
    policy: ResourcePolicy | None = None
    password: str = ""
    projects: Collection[Project] = ()


def create_user(actor: User, new: NewUser) -> User:
    """Create a user with a key pair, as a member of the projects.

    Raises NotAllowed, or UserError that names the field.
    """
    check_domain(actor, Action.CREATE_USER, new.domain)
    check_grant(actor, new.role)
    policy = new.policy or default_policy(PolicyDefault.Holder.USER)
    check_policy_of_user(actor, policy)
    email, full_name = clean_email(new.email), clean_full_name(new.full_name)
    check_projects_of(new.domain, new.projects)
    if new.role == User.Role.ADMIN and new.domain is None:
        raise UserError("A domain admin needs a domain.", field="domain", code="no-domain")
    if new.password:
        check_password(new.password, User(email=email, full_name=full_name))
    with transaction.atomic():
        user = add_user(
            email, new.password or None, full_name=full_name, role=new.role, domain=new.domain, policy=policy
        )
        Membership.objects.bulk_create(Membership(user=user, project=project) for project in new.projects)
        names = sorted(project.name for project in new.projects)
        audit(actor.pk, "user.create", "user", [user.pk], email=email, role=str(new.role), projects=names)
    return user


def add_user(email: str, password: str | None, *, role: str, **fields: object) -> User:
    """Create a user with a key pair, in the caller's transaction. Raises Conflict if the address is taken."""
    try:
        with transaction.atomic():
            user = User.objects.create_user(
                email, password, role=role, is_superuser=role == User.Role.SUPERADMIN, **fields
            )
            KeyPair.objects.create(user=user)
    except IntegrityError as error:
        raise Conflict(
            "An account with this e-mail address already exists.", field="email", code="email-taken"
        ) from error
    return user


def check_projects_of(domain: Domain | None, projects: Collection[Project]) -> None:
    """Raise UserError for a project that belongs to another domain than the person."""
    for project in projects:
        if domain is None or project.domain_id != domain.pk:
            text = Message("Project {project} belongs to another domain than the person.", project=repr(project.name))
            raise UserError(text, field="projects", code="other-domain")


def sign_up(email: str, password: str, *, full_name: str = "") -> User | None:
    """Create an inactive account without domain or project; an administrator must activate it.

    Returns None if the address is taken; that takes as long, and changes nothing.
    """
    email = email.strip().lower()
    digest = make_password(password)
    try:
        with transaction.atomic():
            user: User = User.objects.create(email=email, password=digest, full_name=full_name.strip(), is_active=False)
            KeyPair.objects.create(user=user)
            audit(None, "user.sign-up", "user", [user.pk], email=email)
    except IntegrityError:
        return None
    return user


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
