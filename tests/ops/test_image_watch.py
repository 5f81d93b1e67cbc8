"""The watch over the platform's own images: when it tries again, whom it obeys, and what it leaves behind."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from backendai.agent.settings.marks import is_marked_native
from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.jobs import finish_job, start_job, stop_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog import builds
from backendai.domain.catalog.builds import (
    ASKED,
    begin_build,
    is_due,
    next_try_of,
    pause_after,
    request_build,
    retry_build,
)
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.native_sessions import allow_native_sessions, runs_natively
from backendai.ops.run import image_builds
from backendai.ops.run.image_builds import Builder, ImageWatch
from tests.cast import Cast
from tests.factories import make_image

pytestmark = pytest.mark.django_db
FAILS = "failed no-network No registry answers. | Check the network."


class Site:
    """A watcher whose builder prints what it is told, and whose engine has what it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.there = folder, set[str]()
        self.image: Image = make_image("python", is_built_here=True)
        self.engine_answers = True
        monkeypatch.setattr(image_builds, "missing_images", self._missing)
        (folder / "agents" / "local").mkdir(parents=True)
        self.watch = self.restarted()
        self.prints(FAILS)

    def restarted(self) -> ImageWatch:
        builder = Builder(self.folder / "builder", self.folder / "log", may_run_natively=True)
        return ImageWatch(builder, self.folder / "agents")

    def prints(self, line: str, *, makes_it: bool = False) -> None:
        text = f"open({str(self.folder / 'calls')!r}, 'a').write('x'); print({line!r}, flush=True)"
        made = f"open({str(self.folder / 'made')!r}, 'w')" if makes_it else ""
        (self.folder / "builder").write_text(f"{text}\n{made}")

    def look(self) -> None:
        """Look as if a minute had passed."""
        self.watch._search_at = 0.0
        self.watch.look()

    @property
    def calls(self) -> int:
        path = self.folder / "calls"
        return len(path.read_text()) if path.exists() else 0

    def job(self) -> BackgroundJob:
        return BackgroundJob.objects.get()

    def wait_over(self) -> None:
        """Let the time until the next try be over."""
        job = BackgroundJob.objects.latest("created_at")
        job.result |= {"next_at": (timezone.now() - timedelta(seconds=1)).isoformat()}
        job.save()

    def _missing(self, _: Builder) -> list[Image] | None:
        if not self.engine_answers:
            return None
        return [] if self.image.reference in self.there or (self.folder / "made").exists() else [self.image]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("code", "tries", "minutes"),
    [("no-network", 1, 1), ("disk-full", 3, 4), ("no-network", 40, 15), ("build-failed", 1, 15), ("what", 40, 360)],
)
def test_the_pauses_grow_and_have_an_end(code: str, tries: int, minutes: int) -> None:
    assert pause_after(code, tries) == timedelta(minutes=minutes)


def test_it_tries_again_when_it_is_time_and_keeps_one_row(site: Site) -> None:
    site.look()
    first = site.job()
    assert (first.status, first.result["code"], first.result["tries"]) == ("FAILED", "no-network", 1)
    site.look()
    assert site.calls == 1, "not yet"
    for _ in range(3):
        site.wait_over()
        site.look()
    job = site.job()
    assert (site.calls, job.result["tries"]) == (4, 4)
    due = next_try_of(job)
    assert due is not None
    assert due - job.finished_at == timedelta(minutes=8)


def test_it_ends_when_the_cause_is_gone(site: Site) -> None:
    site.look()
    site.prints("done")
    site.wait_over()
    site.look()
    assert site.job().status == "DONE"
    site.there = {site.image.reference}
    site.look()
    assert site.calls == 2


def test_a_new_start_of_the_platform_tries_at_once(site: Site) -> None:
    site.look()
    site.watch = site.restarted()
    site.watch._owner = "other:1:x"
    builds.PassLease.objects.all().delete()
    site.look()
    assert (site.calls, site.job().result["tries"]) == (2, 2)


def test_what_a_killed_watcher_left_running_is_begun_anew(site: Site) -> None:
    begin_build(site.image, None, now=timezone.now())
    site.look()
    assert site.calls == 1
    assert not BackgroundJob.objects.running().exists()


def test_an_image_that_left_the_engine_is_built_again(site: Site) -> None:
    site.prints("done")
    site.look()
    site.look()
    assert site.calls == 1, "a name that the builder does not make is not built for ever"
    BackgroundJob.objects.update(finished_at=timezone.now() - timedelta(minutes=16))
    site.look()
    assert site.calls == 2


def test_without_an_engine_it_waits_and_keeps_its_first_look(site: Site) -> None:
    site.engine_answers = False
    site.look()
    assert site.calls == 0
    site.engine_answers = True
    site.look()
    assert site.calls == 1


def test_a_second_watcher_does_nothing(site: Site) -> None:
    site.look()
    second = site.restarted()
    second.look()
    assert site.calls == 1


def test_what_a_superadmin_asks_for_begins_with_the_next_look_also_when_the_engine_has_it(
    site: Site, cast: Cast
) -> None:
    site.there = {site.image.reference}
    site.watch.look()
    job = request_build(cast.dana, site.image, now=timezone.now())
    assert job.message == ASKED
    site.watch.look()
    job.refresh_from_db()
    assert (job.status, job.owner, site.calls) == ("FAILED", cast.dana, 1)
    assert AuditEntry.objects.get(action="image.build").target_id == str(site.image.pk)
    again = retry_build(cast.dana, job, now=timezone.now())
    site.prints("done")
    site.watch.look()
    again.refresh_from_db()
    assert again.status == "DONE"


def test_it_refuses_a_build_that_nobody_would_do_or_that_goes_on(site: Site, cast: Cast) -> None:
    now = timezone.now()
    with pytest.raises(Conflict) as caught:
        request_build(cast.dana, site.image, now=now)
    assert caught.value.code == "no-builder"
    site.look()
    request_build(cast.dana, site.image, now=now)
    with pytest.raises(Conflict) as caught:
        request_build(cast.dana, site.image, now=now)
    assert caught.value.code == "job-running"
    with pytest.raises(UserError) as refused:
        request_build(cast.dana, make_image("fetched"), now=now)
    assert refused.value.code == "not-built-here"


def test_only_the_newest_failure_can_be_retried(site: Site, cast: Cast) -> None:
    now = timezone.now()
    old = start_job(BUILD_JOB, site.image.reference, now=now, owner_id=cast.dana.pk)
    finish_job(old.pk, message="It failed.", now=now, failed=True)
    newer = start_job(BUILD_JOB, site.image.reference, now=now + timedelta(seconds=1))
    for job in (old, newer):
        with pytest.raises(Conflict) as caught:
            retry_build(cast.dana, job, now=now)
        assert caught.value.code == "nothing-to-try-again"


def test_a_cancelled_build_waits_for_somebody_to_ask(site: Site) -> None:
    job = start_job(BUILD_JOB, site.image.reference, now=timezone.now())
    stop_job(job.pk, message="Cancelled.", now=timezone.now())
    job.refresh_from_db()
    assert not is_due(job, now=timezone.now() + timedelta(days=1), is_first_look=False)
    assert is_due(job, now=timezone.now(), is_first_look=True)


def test_native_sessions_are_marked_until_the_image_is_there(site: Site, cast: Cast) -> None:
    folder = site.folder / "agents" / "local"
    site.look()
    assert site.job().result["may_run_natively"] is True
    assert not is_marked_native(folder), "nobody has asked for it"
    allow_native_sessions(cast.dana, now=timezone.now())
    site.watch.look()
    assert is_marked_native(folder)
    site.prints("done", makes_it=True)
    site.wait_over()
    site.look()
    assert not is_marked_native(folder), "with the same look that built it"
    assert not runs_natively()
    assert AuditEntry.objects.get(action="native-sessions.end").actor is None


def test_an_operator_who_chose_docker_never_gets_native_sessions(site: Site, cast: Cast) -> None:
    site.watch = ImageWatch(Builder(site.folder / "builder", site.folder / "log"), site.folder / "agents")
    allow_native_sessions(cast.dana, now=timezone.now())
    site.look()
    assert site.job().result["may_run_natively"] is False
    assert not is_marked_native(site.folder / "agents" / "local")
