"""The people of the tests: Alice owns, Bob is on her project, Charlie must see nothing, Dana is the administrator."""

from __future__ import annotations

from dataclasses import dataclass

from backendai.accounts.models import Project, User
from backendai.accounts.services import create_person, get_or_create_project

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
    """Return the cast, freshly written to the database."""
    project = get_or_create_project("default", "vision")
    elsewhere = get_or_create_project("elsewhere", "other")
    return Cast(
        alice=create_person("alice@example.com", password=PASSWORD, project=project),
        bob=create_person("bob@example.com", password=PASSWORD, project=project),
        charlie=create_person("charlie@example.com", password=PASSWORD, project=elsewhere),
        dana=create_person("dana@example.com", password=PASSWORD, project=project, role=User.Role.SUPERADMIN),
        project=project,
        elsewhere=elsewhere,
    )
