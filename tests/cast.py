"""The people of the tests: Alice owns, Bob is on her project, Charlie must see nothing, Dana is the administrator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.auth.hashers import make_password

from backendai.domain.accounts.models import Domain, KeyPair, Membership, Project, User
from backendai.domain.activity.services import audit_each

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Cast:
    alice: User
    bob: User
    charlie: User
    dana: User
    project: Project
    elsewhere: Project


def make_cast() -> Cast:
    """Return the cast, freshly written to a database without people: what ``create_person`` writes, as a test of this
    shows, but in few statements, for most tests begin with it."""
    vision, other = Domain(name="default"), Domain(name="elsewhere")
    write([vision, other])
    project, elsewhere = Project(domain=vision, name="vision"), Project(domain=other, name="other")
    write([project, elsewhere])
    people = [
        person("alice@example.com", vision),
        person("bob@example.com", vision),
        person("charlie@example.com", other),
        person("dana@example.com", vision, role=User.Role.SUPERADMIN, is_superuser=True),
    ]
    write(people)
    write([KeyPair(user=one) for one in people])
    write([Membership(user=one, project=project if one.domain is vision else elsewhere) for one in people])
    made = {one.pk: {"email": one.email, "role": str(one.role)} for one in people}
    audit_each(None, "user.create", "user", made)
    return Cast(*people, project=project, elsewhere=elsewhere)


def person(email: str, domain: Domain, **fields: Any) -> User:
    return User(email=email, domain=domain, password=encoded(), **fields)


def write(rows: list[Any]) -> None:
    type(rows[0]).objects.bulk_create(rows)


@cache
def encoded() -> str:
    return make_password(PASSWORD)
