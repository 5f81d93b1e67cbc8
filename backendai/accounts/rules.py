"""What people, projects and domains may be called, and which passwords will do."""

from __future__ import annotations

import unicodedata

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from backendai.accounts.models import Membership, User
from backendai.core.errors import UserError

LONGEST_EMAIL = 254
LONGEST_NAME = 64
LONGEST_FULL_NAME = 128
# Marks without a letter, joiners, spaces: nobody could click on a name of these alone.
_UNSEEN = frozenset({"Cf", "Cn", "Co", "Mn", "Zs"})


def clean_email(text: str, *, field: str = "email") -> str:
    """Return the address in the form in which it is stored; raises a UserError when it is none."""
    email = text.strip().lower()
    try:
        if len(email) > LONGEST_EMAIL:
            raise ValidationError("too long")
        validate_email(email)
    except ValidationError as error:
        raise UserError("This is not an e-mail address.", field=field, code="invalid-email") from error
    return email


def clean_full_name(text: str, *, field: str = "full_name") -> str:
    """Return a person's name without spaces around it; any script will do, but it is one line."""
    return _line(text, LONGEST_FULL_NAME, field)


def clean_name(text: str, *, field: str = "name") -> str:
    """Return the name of a project or domain: one line, not empty, without a slash (which parts domain and project)."""
    name = _line(text, LONGEST_NAME, field)
    if not name:
        raise UserError("Give it a name.", field=field, code="invalid-name")
    if "/" in name:
        raise UserError("A name has no slash: it parts domain and project.", field=field, code="invalid-name")
    return name


def check_password(password: str, user: User, *, field: str = "password") -> None:
    """Refuse a password that is too short, too common, or too much like who it is for."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise UserError(" ".join(error.messages), field=field, code="weak-password") from error


def check_member_role(role: str, *, field: str = "role") -> str:
    """Return the role in a project; raises a UserError when there is no such role."""
    if role not in Membership.Role.values:
        text = f"There is no such role; there are: {', '.join(Membership.Role.values)}."
        raise UserError(text, field=field, code="invalid-role")
    return str(role)


def _line(text: str, longest: int, field: str) -> str:
    line = text.strip()
    if len(line) > longest:
        raise UserError(f"At most {longest} characters ({len(line)} given).", field=field, code="invalid-name")
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in line):
        raise UserError("It is one line, without control characters.", field=field, code="invalid-name")
    if line and all(unicodedata.category(letter) in _UNSEEN for letter in line):
        raise UserError("Nothing of it can be seen: write a letter or a digit.", field=field, code="invalid-name")
    return line
