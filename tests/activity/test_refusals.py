"""What somebody tried and may not do is in the audit trail, whichever way they tried it, and never floods it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.refusals import Refusal, write_refusals
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import PASSWORD, Cast
from tests.factories import make_group, make_image, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def eve(cast: Cast) -> User:
    """The admin of the domain of Alice, Bob and Dana."""
    return create_person("eve@example.com", password=PASSWORD, project=cast.project, role=User.Role.ADMIN)


def refused() -> list[tuple[str, str, str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(action__startswith="refused.").select_related("actor").order_by("pk")
    return [(row.actor.email, row.action, row.target_id, row.details) for row in rows]


def test_a_role_above_ones_own_is_refused_and_written_down_once_a_minute(cast: Cast, eve: User) -> None:
    address = f"/api/v1/users/{cast.alice.pk}/"
    for _ in range(3):
        assert Caller(eve).patch(address, {"role": "superadmin"}).status_code == 403
    assert refused() == [
        ("eve@example.com", "refused.grant-role", "", {"role": "superadmin", "code": "above-own-role"})
    ]
    assert Caller(eve).patch(f"/api/v1/users/{cast.dana.pk}/", {"full_name": "D"}).status_code in (403, 404)
    assert len(refused()) == 2, "another action is another entry"
    cast.alice.refresh_from_db()
    assert cast.alice.role == User.Role.USER
    AuditEntry.objects.update(at=timezone.now() - timedelta(minutes=2))
    Caller(eve).patch(address, {"role": "superadmin"})
    assert len(refused()) == 3


def test_acting_for_somebody_elses_people_and_touching_what_is_theirs_is_written_down(cast: Cast, eve: User) -> None:
    make_group()
    make_image()
    assert Caller(eve).post(SESSIONS, LAUNCH | {"owner": cast.charlie.email}).status_code == 404
    session = make_session(cast.alice)
    assert Caller(cast.charlie).post(f"{SESSIONS}{session.pk}/terminate/").status_code == 404
    assert Caller(cast.charlie).get(f"{SESSIONS}{session.pk}/").status_code == 404, "looking is not written down"
    assert Client().post(f"{SESSIONS}{session.pk}/terminate/").status_code in (401, 403), "nor what nobody does"
    details = {"method": "POST", "status": 404, "code": "not-found"}
    assert refused() == [
        ("eve@example.com", "refused.act-for", "charlie@example.com", {}),
        ("charlie@example.com", "refused.api:session-terminate", str(session.pk), details),
    ]


def test_a_refusal_on_a_page_is_written_down_and_what_a_page_only_offers_is_not(cast: Cast, eve: User) -> None:
    client = Client()
    client.force_login(eve)
    page = client.get(f"/manage/users/{cast.alice.pk}/")
    assert page.status_code == 200 and refused() == []
    answer = client.post(f"/manage/users/{cast.charlie.pk}/password/", {"password": "X"})
    assert answer.status_code == 404
    assert [row[:3] for row in refused()] == [("eve@example.com", "refused.manage:user-password", str(cast.charlie.pk))]
    dana = Client()
    dana.force_login(cast.dana)
    for choice, shown in (("yes", True), ("no", False)):
        text = dana.get("/manage/audit/", {"refused": choice}).content.decode()
        assert ("refused.manage:user-password" in text, "user.create" in text) == (shown, not shown)


def test_many_refusals_of_one_request_are_written_in_two_statements(cast: Cast, django_assert_num_queries: Any) -> None:
    many = [Refusal(cast.bob.pk, f"action-{number % 2}", "thing", details={"n": number}) for number in range(5)]
    with django_assert_num_queries(2):
        assert write_refusals(many, now=timezone.now()) == 2
    with django_assert_num_queries(1):
        assert write_refusals(many, now=timezone.now()) == 0
    assert json.dumps(refused()).count("bob@example.com") == 2
