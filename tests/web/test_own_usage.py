"""The account page of the resources that one's own sessions held."""

from __future__ import annotations

from datetime import date

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import Membership, User
from backendai.domain.usage.models import UsageBucket
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_group

pytestmark = pytest.mark.django_db
DAYS = {"first": "2030-01-01", "last": "2030-01-03"}


@pytest.fixture
def used(cast: Cast) -> Cast:
    """Alice and Bob held cores for an hour in their project, Charlie in another one."""
    group = make_group()
    for user, project, cores in (
        (cast.alice, cast.project, 2),
        (cast.bob, cast.project, 4),
        (cast.charlie, cast.elsewhere, 8),
    ):
        UsageBucket.objects.create(
            resource_group=group, user=user, project=project, domain=project.domain, day=date(2030, 1, 2),
            slot="cpu", amount_seconds=cores * 3600,
        )  # fmt: skip
    return cast


def hours(user: User, **asked: str) -> dict[str, str]:
    """Return the CPU hours that the page shows this person, by line."""
    client = Client()
    client.force_login(user)
    rows = client.get(reverse("web:own_usage"), DAYS | asked).context["rows"]
    return {name: cells[0][1] for name, cells in rows}


def test_everybody_sees_their_own(used: Cast) -> None:
    assert hours(used.alice) == {"vision": "2.00"}
    assert hours(used.dana) == {}, "a superadmin has the statistics for all others"


def test_a_project_admin_sees_the_members_in_that_project_alone(used: Cast) -> None:
    UsageBucket.objects.filter(user=used.charlie).update(user=used.bob)  # Bob's in another project
    Membership.objects.filter(user=used.alice).update(role=Membership.Role.ADMIN)
    assert hours(used.alice, by="user") == {"alice@example.com": "2.00", "bob@example.com": "4.00"}
    lines = Caller(used.alice).get("/api/v1/statistics/", **DAYS).json()["lines"]
    assert {line["name"]: line["hours"]["cpu"] for line in lines} == {"alice@example.com": 2.0, "bob@example.com": 4.0}


def test_it_is_a_file_too_and_names_what_is_wrong(used: Cast) -> None:
    client = Client()
    client.force_login(used.alice)
    file = client.get(reverse("web:own_usage"), DAYS | {"export": "csv"})
    assert b"".join(file.streaming_content).decode().splitlines()[1] == "vision,2.00,0.00"
    wrong = client.get(reverse("web:own_usage"), {"first": "2030-01-02", "last": "2030-01-01"})
    assert (wrong.status_code, list(wrong.context["form"].errors)) == (422, ["last"])
