"""A world with somebody of every role, for the tests of who may do what."""

from __future__ import annotations

from dataclasses import dataclass

from backendai.domain.accounts.models import Domain, Membership, Project, User
from backendai.domain.accounts.services import create_person, get_or_create_project
from tests.cast import PASSWORD, Cast, make_cast


@dataclass(frozen=True)
class World:
    """The cast, and: Erin and Frank are domain admins of theirs, Bob is a project admin of ``vision``. ``speech`` is
    another project of the domain, and Gina a user who is in no project of it."""

    cast: Cast
    erin: User
    frank: User
    bob: User
    gina: User
    vision: Project
    speech: Project
    other: Project
    domain: Domain
    elsewhere: Domain

    def person(self, name: str) -> User:
        """Return one of them, freshly read."""
        found: User = getattr(self, name, None) or getattr(self.cast, name)
        return User.objects.get(pk=found.pk)


def make_world() -> World:
    """Return the world, freshly written to the database."""
    cast = make_cast()
    speech = get_or_create_project("default", "speech")
    admin = User.Role.ADMIN
    gina = create_person("gina@example.com", password=PASSWORD, project=speech)
    Membership.objects.filter(user=gina).delete()
    Membership.objects.filter(user=cast.bob, project=cast.project).update(role="admin")
    return World(
        cast=cast,
        erin=create_person("erin@example.com", password=PASSWORD, project=speech, role=admin),
        frank=create_person("frank@example.com", password=PASSWORD, project=speech, role=admin),
        bob=cast.bob,
        gina=gina,
        vision=cast.project,
        speech=speech,
        other=cast.elsewhere,
        domain=cast.project.domain,
        elsewhere=cast.elsewhere.domain,
    )
