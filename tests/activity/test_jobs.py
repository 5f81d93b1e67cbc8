"""Background jobs: one word at a time, and none after the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.wire import browser
from backendai.base.wire.browser import JobEvent
from backendai.domain.activity import jobs
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.portal.loops.repair.rounds import repair
from tests.cast import Cast

pytestmark = pytest.mark.django_db
NOW = timezone.now()
LATER = NOW + timedelta(minutes=1)


def start(owner: Any = None, **over: Any) -> BackgroundJob:
    owner_id = owner.pk if owner else None
    return jobs.start_job(over.pop("kind", "image.copy"), "python", now=over.pop("now", NOW), owner_id=owner_id, **over)


def test_it_counts_up_to_its_end_and_hears_nothing_after_it(cast: Cast) -> None:
    job = start(cast.alice, total=4, unit="agents")
    assert jobs.report_progress(job.pk, None, "Two are done.", now=LATER, done=2)
    job.refresh_from_db()
    assert (job.share, job.message, job.updated_at) == (0.5, "Two are done.", LATER)
    assert jobs.finish_job(job.pk, message="All have it.", now=LATER, result={"parts": []})
    assert not jobs.report_progress(job.pk, 0.1, "A late word.", now=LATER)
    assert not jobs.finish_job(job.pk, message="Once more.", now=LATER, failed=True)
    assert not jobs.stop_job(job.pk, message="Cancelled.", now=LATER)
    job.refresh_from_db()
    assert (job.status, job.message, job.share, job.finished_at) == ("DONE", "All have it.", 1.0, LATER)


def test_a_second_one_about_the_same_closes_the_first_or_is_refused() -> None:
    first, other = start(), start(kind="registry.scan")
    with pytest.raises(Conflict, match="is already running"):
        jobs.refuse_second("image.copy", "python")
    second = start()
    assert dict(BackgroundJob.objects.values_list("pk", "status")) == {
        first.pk: "FAILED",
        other.pk: "RUNNING",
        second.pk: "RUNNING",
    }


def test_its_worker_learns_of_the_cancel_at_its_next_word(cast: Cast) -> None:
    job = start(cast.alice)
    jobs.cancel_job(cast.alice, job.pk, now=NOW)
    jobs.cancel_job(cast.dana, job.pk, now=LATER)
    assert not jobs.report_progress(job.pk, 0.5, "Half.", now=LATER)
    job.refresh_from_db()
    assert (job.status, job.is_cancelling, job.cancel_requested_at) == ("RUNNING", True, NOW)
    assert jobs.stop_job(job.pk, message="Stopped at half.", now=LATER)
    with pytest.raises(Conflict, match="over: cancelled"):
        jobs.cancel_job(cast.alice, job.pk, now=LATER)
    entry = AuditEntry.objects.get(action="job.cancel")
    assert (entry.actor, entry.target_id) == (cast.alice, str(job.pk)), "asking twice is one action"


def test_nobody_cancels_what_they_may_not_see(cast: Cast) -> None:
    job, own = start(cast.alice), start(kind="image.build")
    for stranger, hidden in ((cast.bob, job), (cast.charlie, job), (cast.alice, own)):
        with pytest.raises(NotFound):
            jobs.cancel_job(stranger, hidden.pk, now=NOW)
    assert not BackgroundJob.objects.exclude(cancel_requested_at=None).exists()


def test_the_repair_pass_gives_up_what_is_silent_or_takes_too_long(cast: Cast) -> None:
    silent = start(silence_limit=timedelta(minutes=2))
    cancelled = start(cast.alice, kind="registry.scan", silence_limit=timedelta(minutes=2))
    jobs.cancel_job(cast.alice, cancelled.pk, now=NOW)
    long = start(kind="image.build", silence_limit=timedelta(hours=9), longest=timedelta(minutes=3))
    alive = start(kind="agents.scan", silence_limit=timedelta(minutes=2))
    at = NOW + timedelta(minutes=4)
    jobs.report_progress(alive.pk, None, "Still here.", now=at)
    repair(at)
    repair(at)
    found = {job.pk: job for job in BackgroundJob.objects.all()}
    assert found[silent.pk].status == "FAILED"
    assert "No progress for 4 min" in found[silent.pk].message
    assert found[cancelled.pk].status == "CANCELLED"
    assert found[long.pk].status == "FAILED"
    assert "time limit of 3 min" in found[long.pk].message
    assert found[alive.pk].status == "RUNNING"


def test_what_ended_long_ago_is_forgotten(cast: Cast) -> None:
    done, fresh, running = start(), start(kind="a"), start(kind="b", silence_limit=timedelta(days=99))
    jobs.finish_job(done.pk, message="Done.", now=NOW)
    jobs.finish_job(fresh.pk, message="Done.", now=NOW + timedelta(days=20))
    assert jobs.delete_old_jobs(NOW + timedelta(days=31)) == 1
    assert set(BackgroundJob.objects.values_list("pk", flat=True)) == {fresh.pk, running.pk}


def test_it_tells_browsers_of_every_change_after_the_commit(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    told: list[JobEvent] = []
    monkeypatch.setattr(browser._sender, "put", told.extend)
    with django_capture_on_commit_callbacks(execute=True):
        job = start(cast.alice)
        jobs.report_progress(job.pk, 0.5, "Half.", now=NOW)
        jobs.finish_job(job.pk, message="Done.", now=NOW)
        assert not told
    own = str(cast.alice.pk)
    assert told == [JobEvent(str(job.pk), own, "image.copy", status) for status in ("RUNNING", "RUNNING", "DONE")]
