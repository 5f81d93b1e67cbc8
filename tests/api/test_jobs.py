"""Background jobs over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.activity import jobs
from tests.api.callers import Caller
from tests.cast import Cast

pytestmark = pytest.mark.django_db
JOBS = "/api/v1/jobs/"


def test_one_sees_and_cancels_ones_own_and_superadmins_all(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    now = timezone.now()
    own = jobs.start_job("image.pull", "python", "Begun.", now=now, owner_id=cast.alice.pk, total=4, unit="agents")
    jobs.report_progress(own.pk, None, "One is done.", now=now, done=1)
    platforms = jobs.start_job("image.build", "base", now=now)
    alice, dana = Caller(cast.alice), Caller(cast.dana)
    alice.get(JOBS)
    with django_assert_num_queries(2):
        rows = alice.get(JOBS).json()["results"]
    assert [(row["id"], row["progress"], row["message"]) for row in rows] == [(str(own.pk), 0.25, "One is done.")]
    assert len(dana.get(JOBS).json()["results"]) == 2
    narrowed = dana.get(JOBS, kind="image.build", status="RUNNING").json()["results"]
    assert [row["id"] for row in narrowed] == [str(platforms.pk)]
    answer = alice.post(f"{JOBS}{own.pk}/cancel/")
    assert (answer.status_code, answer.json()["status"]) == (200, "RUNNING")
    assert answer.json()["cancel_requested_at"]
    jobs.stop_job(own.pk, message="Stopped.", now=now)
    answer = alice.post(f"{JOBS}{own.pk}/cancel/")
    assert (answer.status_code, answer.json()["code"]) == (409, "job-over")
    assert alice.get(f"{JOBS}{own.pk}/").json()["status"] == "CANCELLED"
