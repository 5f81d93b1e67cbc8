"""The people of the tests are as the verbs make people, though they are written in another way."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import transaction

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person, get_or_create_project
from tests.cast import PASSWORD, make_cast

# What differs from one writing to the next.
PASSING = {"id", "access_key", "created_at", "at", "password", "target_id"}


@pytest.mark.ci
@pytest.mark.django_db
def test_the_cast_is_written_as_the_verbs_write_people() -> None:
    by_the_verbs = rows_after(make_by_the_verbs)
    assert rows_after(make_cast) == by_the_verbs
    assert len(by_the_verbs["accounts.User"]) == 4


@pytest.mark.django_db
def test_the_cast_signs_in_with_its_password() -> None:
    cast = make_cast()
    everybody = [cast.alice, cast.bob, cast.charlie, cast.dana]
    assert all(User.objects.get(pk=one.pk).check_password(PASSWORD) for one in everybody)
    assert not cast.alice.check_password("something else")


def make_by_the_verbs() -> None:
    project, elsewhere = get_or_create_project("default", "vision"), get_or_create_project("elsewhere", "other")
    for name, where, role in (
        ("alice", project, "user"),
        ("bob", project, "user"),
        ("charlie", elsewhere, "user"),
        ("dana", project, "superadmin"),
    ):
        create_person(f"{name}@example.com", password=PASSWORD, project=where, role=role)


def rows_after(write: Any) -> dict[str, list[Any]]:
    """Return what is then in every table that is not empty, less what passes; nothing is kept."""
    with transaction.atomic():
        write()
        found = {model._meta.label: model._base_manager.order_by("pk") for model in apps.get_models()}
        rows = {label: [told(row) for row in query] for label, query in found.items()}
        transaction.set_rollback(True)
    return {label: sorted(every, key=repr) for label, every in rows.items() if every}


def told(row: Any) -> dict[str, Any]:
    """Return the row's values; in place of another row, what it is called."""
    values = {}
    for field in row._meta.concrete_fields:
        value = getattr(row, field.name)
        values[field.name] = str(value) if field.is_relation else value
    return {name: value for name, value in values.items() if name not in PASSING}
