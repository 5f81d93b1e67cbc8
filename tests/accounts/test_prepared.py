"""Statements that are kept: they say the same as the queryset, each time, to everybody."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from backendai.base.db.prepared import Prepared
from backendai.domain.accounts.acting import projects_to_act_in
from backendai.domain.accounts.models import Domain, KeyPair, Project, User
from tests.cast import Cast

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def test_a_change_is_seen_by_the_next_who_asks(cast: Cast) -> None:
    projects = Prepared(lambda user: Project.objects.usable_by(user).order_by("name"))
    assert [each.name for each in projects.rows(cast.alice)] == ["vision"]
    Project.objects.filter(pk=cast.project.pk).update(name="sound")
    assert [each.name for each in projects.rows(cast.alice)] == ["sound"]
    cast.elsewhere.memberships.create(user=cast.alice)
    assert [each.name for each in projects.rows(cast.alice)] == ["other", "sound"]
    Project.objects.update(is_active=False)
    assert projects.rows(cast.alice) == []


@pytest.mark.django_db(transaction=True)
def test_rows_are_held_still_within_a_transaction_only() -> None:
    held = Prepared(lambda name: Project.objects.select_for_update().filter(name=name))
    with transaction.atomic():
        assert held.rows("nobody's") == []
    with pytest.raises(TransactionManagementError):
        held.rows("nobody's")


def test_everybody_gets_their_own(cast: Cast, django_assert_num_queries: Any) -> None:
    made: list[User] = []

    def visible_to(user: User) -> QuerySet[Project]:
        made.append(user)
        return Project.objects.visible_to(user).order_by("name")

    projects = Prepared(visible_to)
    # Alice and Charlie differ in nothing but ids; the role of Dana asks for something else.
    for person in (cast.alice, cast.charlie, cast.dana, cast.alice, cast.charlie, cast.dana):
        with django_assert_num_queries(1):
            found = projects.rows(person)
        assert found == list(Project.objects.visible_to(person).order_by("name"))
    assert len({each.role for each in made}) == 2
    assert not {each.pk for each in made} & {cast.alice.pk, cast.charlie.pk, cast.dana.pk}, "no person's id is kept"
    assert len(made) == 4, "each statement is made twice, to compare"


def test_who_is_the_same_is_the_same_in_the_statement(cast: Cast) -> None:
    projects = Prepared(projects_to_act_in)
    cast.bob.role, cast.bob.domain = User.Role.ADMIN, cast.elsewhere.domain
    for actor, owner in ((cast.bob, cast.alice), (cast.bob, cast.bob), (cast.bob, cast.charlie)):
        assert projects.rows(actor, owner) == list(projects_to_act_in(actor, owner)), (actor, owner)
    assert projects.rows(cast.bob, cast.bob) and not projects.rows(cast.bob, cast.alice)


def test_it_takes_ids_numbers_texts_and_what_is_kept_as_it_is(cast: Cast) -> None:
    def named(user_id: UUID, domain_id: int | None, email: str, order: tuple[str, ...]) -> QuerySet[Any, Any]:
        wanted = Q(pk=user_id) | Q(domain=domain_id) | Q(email=email)
        return User.objects.filter(wanted).order_by(*order).values_list("email", flat=True)

    people = Prepared(named)
    emails = ["alice@example.com", "bob@example.com", "dana@example.com"]
    assert people.rows(uuid4(), cast.alice.domain_id, "", ("email",)) == emails
    assert people.rows(uuid4(), cast.alice.domain_id, "", ("-email",)) == emails[::-1]
    assert people.rows(cast.charlie.pk, None, "bob@example.com", ("email",)) == [
        "bob@example.com",
        "charlie@example.com",
    ]
    assert people.rows(uuid4(), None, "it's %s \\ \"", ("email",)) == []


def test_rows_come_as_the_queryset_makes_them(cast: Cast, django_assert_num_queries: Any) -> None:
    KeyPair.objects.filter(user=cast.alice).delete()
    pair = KeyPair.objects.create(user=cast.alice)
    with_owner = Prepared(
        lambda user: KeyPair.objects.filter(user=user).select_related("user").annotate(of=F("user_id"))
    )
    assert with_owner.rows(cast.alice)  # what it needs to be made is no matter
    with django_assert_num_queries(1):
        (found,) = with_owner.rows(cast.alice)
        assert (found, found.user.email, found.of) == (pair, "alice@example.com", cast.alice.pk)
    found.name = "another"
    found.save()
    assert with_owner.first(cast.alice).name == "another"  # type: ignore[union-attr]
    assert Prepared(lambda: Domain.objects.values("name").filter(name="elsewhere")).rows() == [{"name": "elsewhere"}]
    emails = User.objects.order_by().values_list("email")
    united = Prepared(lambda one, other: emails.filter(pk=one).union(emails.filter(pk=other)))
    assert sorted(united.rows(cast.bob.pk, cast.alice.pk)) == [("alice@example.com",), ("bob@example.com",)]
    assert Prepared(lambda user: User.objects.none()).rows(cast.alice) == []
    assert Prepared(lambda user: User.objects.none()).first(cast.alice) is None


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda user: User.objects.filter(email=user.email), User.DoesNotExist),
        (lambda user: User.objects.filter(is_active=user.is_active), User.DoesNotExist),
        (lambda user: User.objects.filter(created_at__lt=timezone.now()), TypeError),
        (lambda user: Project.objects.filter(name__contains=str(user.pk)), TypeError),
        (lambda user: Project.objects.filter(memberships__user=user).prefetch_related("memberships"), TypeError),
        (lambda user: User.objects.order_by("email")[: user.pk.int % 2**31], TypeError),
    ],
)
def test_what_would_be_kept_though_it_changes_is_refused(cast: Cast, build: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Prepared(build).rows(cast.alice)
