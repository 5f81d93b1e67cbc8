"""Validates names of people, projects and domains, and passwords."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import clean_line
from backendai.domain.accounts.models import Membership, User

_ROLE_NAMES = ("member", "project-admin")  # as people read them
_MEMBER_ROLES = {"project-admin": "admin", "project-member": "member"}  # as mappings of sign-ins and pages name them
LONGEST_EMAIL = 254
LONGEST_NAME = 64
LONGEST_FULL_NAME = 128


def clean_email(text: str, *, field: str = "email") -> str:
    """Return the address in its stored form. Raises UserError if it is invalid."""
    email = text.strip().lower()
    try:
        if len(email) > LONGEST_EMAIL:
            raise ValidationError(Message("too long"))
        validate_email(email)
    except ValidationError as error:
        raise UserError("Enter an e-mail address.", field=field, code="invalid-email") from error
    return email


def clean_full_name(text: str, *, field: str = "full_name") -> str:
    """Return a person's name without surrounding spaces. Any script is allowed, on one line."""
    return clean_line(text, longest=LONGEST_FULL_NAME, field=field, of_person=True)


def clean_name(text: str, *, field: str = "name") -> str:
    """Return the name of a project or domain.

    Raises UserError if it is empty, has several lines, or contains a slash.
    """
    name = clean_line(text, longest=LONGEST_NAME, field=field)
    if not name:
        raise UserError("Give it a name.", field=field, code="invalid-name")
    if "/" in name:
        raise UserError(
            "A name cannot contain a slash: it separates domain and project.", field=field, code="invalid-name"
        )
    return name


def check_password(password: str, user: User, *, field: str = "password") -> None:
    """Raise UserError for a password that is too short, too common, or too similar to the user's data."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise UserError(" ".join(error.messages), field=field, code="weak-password") from error


def check_member_role(role: str, *, field: str = "role") -> str:
    """Return the project role for this text; ``project-admin`` means ``admin``.

    Raises UserError for an unknown role.
    """
    role = _MEMBER_ROLES.get("-".join(role.lower().split()), role)
    if role not in Membership.Role.values:
        text = Message("Unknown role: choose one of {values}.", values=[*_ROLE_NAMES])
        raise UserError(text, field=field, code="invalid-role")
    return str(role)
