"""Bringing people in from a CSV file."""

from __future__ import annotations

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.base.core.errors import UserError
from backendai.domain.accounts.csv_people import LARGEST_FILE, MOST_ROWS
from backendai.domain.accounts.models import Invitation, Membership, ResourcePolicy, User
from backendai.domain.accounts.services import (
    accept_as_new,
    digest_of,
    get_or_create_project,
    import_people,
    plan_import,
)
from backendai.domain.activity.models import AuditEntry
from tests.accounts.world import World, make_world
from tests.cast import PASSWORD

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def world(db: None) -> World:
    return make_world()


@pytest.mark.parametrize("form", ["comma", "semicolon and byte-order mark", "windows lines, other order"])
def test_it_invites_newcomers_and_joins_who_is_here(world: World, form: str) -> None:
    ResourcePolicy.objects.create(name="students", max_sessions=2)
    rows = [
        ["email", "full_name", "project", "role", "policy"],
        ["New@Example.com", "Nora, née Neu", "vision", "", "students"],
        ["other@example.com", "", "default/speech", "admin", ""],
        ["gina@example.com", "", "vision", "", ""],
        ["", "", "", "", ""],
    ]
    if form.startswith("windows"):
        rows = [row[::-1] for row in rows]
    mark, end, comma = (
        "\ufeff" if "mark" in form else "",
        "\r\n" if "windows" in form else "\n",
        ";" if "semi" in form else ",",
    )
    text = mark + end.join(comma.join(f'"{cell}"' if "," in cell else cell for cell in row) for row in rows) + end
    plan, links = import_people(world.erin, text.encode(), now=NOW)
    assert plan.problems == []
    assert (plan.invitations, plan.memberships) == (2, 1)
    assert world.gina.memberships.get().project == world.vision
    assert {link.invitation.email for link in links} == {"new@example.com", "other@example.com"}
    [first] = [link for link in links if link.invitation.email == "new@example.com"]
    user = accept_as_new(digest_of(first.text), full_name=first.invitation.full_name, password=PASSWORD, now=NOW)
    assert user.full_name == "Nora, née Neu"
    assert user.policy is not None
    assert user.policy.name == "students"
    entry = AuditEntry.objects.get(action="user.import")
    assert entry.details == {"invited": 2, "joined": 1}


def test_it_names_every_problem_by_line_and_field_and_writes_nothing(world: World) -> None:
    get_or_create_project("elsewhere", "vision")
    file = "\n".join(
        [
            "email,full_name,project,role,policy",
            "fine@example.com,Fine,speech,,",
            "no address,,speech,,",
            "a@example.com,,nowhere,,",
            "b@example.com,,vision,,",
            "c@example.com,,speech,owner,",
            "d@example.com,,speech,,none",
            "fine@example.com,Again,speech,,",
            "fine@example.com,Again,default/speech,,",
            "alice@example.com,,default/vision,,",
            "charlie@example.com,,speech,,",
            "gina@example.com,,speech,,wide",
            "e@example.com,,,,,,",
            "\0,,nowhere,boss,none",
        ]
    )
    ResourcePolicy.objects.create(name="wide")
    before = (Invitation.objects.count(), Membership.objects.count(), AuditEntry.objects.count())
    plan, links = import_people(world.cast.dana, file.encode(), now=NOW)
    assert [(problem.line, problem.field) for problem in plan.problems] == [
        (3, "email"),
        (4, "project"),
        (5, "project"),  # two domains have it
        (6, "role"),
        (7, "policy"),
        (8, "email"),  # twice
        (9, "email"),  # twice, written differently
        (10, "email"),  # a member already
        (11, "email"),  # of another domain
        (12, "policy"),  # has an account
        (13, ""),
        (13, "project"),
        (14, "email"),
        (14, "role"),
        (14, "project"),  # all problems of a line at once
    ]
    assert "choose one of member, project-admin." in plan.problems[3].text
    assert links == []
    assert (Invitation.objects.count(), Membership.objects.count(), AuditEntry.objects.count()) == before


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "wrong-columns"),
        (b"email,project\n", "empty-file"),
        (b"email\nx@example.com\n", "wrong-columns"),
        (b"email,project,salary\n", "wrong-columns"),
        (b"email,email,project\n", "wrong-columns"),
        ("email,project\nü@x,y\n".encode("latin-1"), "not-utf-8"),
        (b'email,project\n"open,vision\n', "invalid-csv"),
        (b"email,project\n" + b"\0" * 10 + b",vision\n", None),
        (b"email,project\n" + b"x" * LARGEST_FILE, "file-too-large"),
        (b"email,project\n" + b"a@b.example,vision\n" * (MOST_ROWS + 1), "too-many-rows"),
    ],
)
def test_it_refuses_a_file_that_it_cannot_read(world: World, content: bytes, code: str | None) -> None:
    if code is None:
        assert plan_import(world.erin, content).problems
        return
    with pytest.raises(UserError) as refused:
        plan_import(world.erin, content)
    assert (refused.value.code, refused.value.field) == (code, "file")


def test_the_largest_file_takes_few_queries(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    lines = [f"person-{number}@example.com,Person {number},vision" for number in range(MOST_ROWS)]
    file = "\n".join(["email,full_name,project", *lines]).encode()
    with django_assert_max_num_queries(150):
        _, links = import_people(world.erin, file, now=NOW)
    assert len(links) == MOST_ROWS == Invitation.objects.pending().count()
    assert not User.objects.filter(email="person-1@example.com").exists()
    again, _ = import_people(world.erin, file, now=NOW)
    assert again.problems == []
    assert Invitation.objects.pending().count() == MOST_ROWS, "the earlier links are replaced"
