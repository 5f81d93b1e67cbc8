"""Idle checkers over REST, and what they say of a session."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.cluster.models import IdleChecker
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.records.traffic import note_traffic
from backendai.portal.loops import idle
from tests.api.callers import Caller
from tests.cast import Cast
from tests.controller.clocks import passes_went_on_until
from tests.factories import make_group, make_running_session

pytestmark = pytest.mark.django_db
CHECKERS = "/api/v1/idle-checkers/"
QUIET = {"name": "quiet", "kind": "network-timeout", "limit": "01:00:00", "warning": 600, "is_site_wide": True}


def patch(caller: Caller, path: str, body: Any) -> Any:
    return caller._client.patch(path, json.dumps(body), content_type="application/json")


def test_superadmins_write_them(cast: Cast) -> None:
    make_group("gpu")
    dana = Caller(cast.dana)
    answer = dana.post(CHECKERS, QUIET | {"groups": ["gpu"], "thresholds": {"cpu": 10}})
    assert answer.status_code == 201, answer.content
    found = answer.json()
    assert (found["limit"], found["warning"], found["groups"], found["is_site_wide"], found["thresholds"]) == (
        "01:00:00", "00:10:00", ["gpu"], True, {"cpu": 10.0},
    )  # fmt: skip
    path = f"{CHECKERS}{found['id']}/"
    assert patch(dana, path, {"is_site_wide": False}).json()["groups"] == ["gpu"]
    assert patch(dana, path, {"groups": [], "projects": [str(cast.project.pk)]}).json()["projects"] == [
        str(cast.project.pk)
    ]
    wrong = patch(dana, path, {"warning": "00:40:00"})
    assert (wrong.status_code, wrong.json()["field"], wrong.json()["code"]) == (400, "warning", "invalid-idle-checker")
    assert dana.post(CHECKERS, QUIET).json()["code"] == "name-taken"
    assert patch(dana, path, {"colour": "blue"}).status_code == 400
    assert [one["name"] for one in dana.get(CHECKERS).json()["results"]] == ["quiet"]
    assert dana.delete(path).status_code == 204
    assert not IdleChecker.objects.exists()


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    """Alice's session, unused for 55 minutes where an hour is allowed, and warned."""
    Caller(cast.dana).post(CHECKERS, QUIET)
    found = make_running_session(cast.alice)
    now = timezone.now()
    ComputeSession.objects.filter(pk=found.pk).update(started_at=now - timedelta(minutes=55))
    note_traffic({found.pk: now - timedelta(minutes=55)})
    passes_went_on_until(now)
    idle.run_idle(now)
    return found


def test_its_owner_reads_what_is_measured_and_what_is_left(
    cast: Cast, session: ComputeSession, django_assert_max_num_queries: Any
) -> None:
    path = f"/api/v1/sessions/{session.pk}/idle/"
    alice = Caller(cast.alice)
    with django_assert_max_num_queries(16):
        found = alice.get(path).json()
    (check,) = found["results"]
    assert (check["name"], check["kind"], check["verdict"], check["code"]) == (
        "quiet", "network-timeout", "warn", "near-end",
    )  # fmt: skip
    assert 280 < 3600 - check["idle_seconds"] <= 300 and check["limit_seconds"] == 3600
    assert 500 < check["remaining_seconds"] <= 600, "a late warning stands for its whole time"
    assert check["warned_at"] and found["ends_at"] == check["ends_at"]
    assert (check["extensions_left"], check["extension_seconds"]) == (3, 3600)
    assert Caller(cast.charlie).get(path).status_code == 404


def test_its_owner_puts_the_end_off(cast: Cast, session: ComputeSession) -> None:
    path, checker = f"/api/v1/sessions/{session.pk}/idle/extend/", IdleChecker.objects.get()
    alice = Caller(cast.alice)
    assert Caller(cast.charlie).post(path, {"checker": checker.pk}).status_code == 404
    answer = alice.post(path, {"checker": checker.pk})
    (check,) = answer.json()["results"]
    assert (answer.status_code, check["verdict"], check["warned_at"], check["extensions_left"]) == (
        200,
        "keep",
        None,
        2,
    )
    assert check["remaining_seconds"] > 3600 + 480 and check["extended_until"] == check["ends_at"]
    assert alice.post(path, {"checker": checker.pk}).json()["code"] == "no-idle-warning"
    checker.max_extensions = 1
    checker.save()
    ComputeSession.objects.update(started_at=timezone.now() - timedelta(days=1))
    later = timezone.now() + timedelta(hours=2)
    passes_went_on_until(later)
    idle.run_idle(later)
    refused = alice.post(path, {"checker": checker.pk})
    assert (refused.status_code, refused.json()["code"]) == (409, "no-more-extensions")


def test_of_a_session_that_does_not_run_nothing_is_said(cast: Cast, session: ComputeSession) -> None:
    ComputeSession.objects.filter(pk=session.pk).update(status="PENDING")
    found = Caller(cast.alice).get(f"/api/v1/sessions/{session.pk}/idle/").json()
    assert found == {"ends_at": None, "results": []}
