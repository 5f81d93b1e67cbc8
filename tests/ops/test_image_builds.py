"""Building images in the background: what the builder prints becomes what waiting people read."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.services import seed_images
from backendai.domain.compute.status import Status
from backendai.ops.run import image_builds
from backendai.ops.run.image_builds import Builder, BuildStopped, build, build_missing
from backendai.portal.loops.loops import run_pass
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session

pytestmark = pytest.mark.django_db


def builder_that_prints(folder: Path, *lines: str, then: str = "") -> Builder:
    command = folder / "builder"
    command.write_text("\n".join([*(f"print({line!r}, flush=True)" for line in lines), then]))
    return Builder(command, folder / "log")


def test_it_carries_the_progress_of_a_build_to_its_end(tmp_path: Path) -> None:
    image = make_image("python", is_built_here=True)
    lines = ("progress 0.41 python: installing (step 3 of 7)", "done all is well")
    assert build(image, builder_that_prints(tmp_path, *lines))
    job = BackgroundJob.objects.get()
    assert (job.subject, job.status, job.progress) == (image.reference, "DONE", 1.0)


def test_a_broken_build_names_its_fix_to_those_who_wait(cast: Cast, tmp_path: Path) -> None:
    make_agent()
    image = make_image("python", is_built_here=True)
    lines = ("progress 0.1 base: fetching", "failed disk-full No space is left. | Free 3 GB and try again.")
    assert not build(image, builder_that_prints(tmp_path, *lines))
    session = make_session(cast.alice)
    run_pass(session.created_at)
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.PENDING, "image-build-failed")
    assert "Free 3 GB" in session.status_message
    assert BackgroundJob.objects.get().result["code"] == "disk-full"


def test_a_builder_that_dies_without_a_word_is_a_failed_build(tmp_path: Path) -> None:
    image = make_image("python", is_built_here=True)
    assert not build(image, builder_that_prints(tmp_path, "progress 0.2 on the way"))
    job = BackgroundJob.objects.get()
    assert (job.status, job.result["code"]) == ("FAILED", "no-answer")
    assert job.fix


def test_a_cancelled_build_stops_its_builder(cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_image("python", is_built_here=True)
    builder = builder_that_prints(tmp_path, "progress 0.2 on the way", then="import time; time.sleep(60)")

    def cancelled(job_id: object, *told: object, now: object) -> bool:
        cancel_job(cast.dana, job_id, now=now)  # type: ignore[arg-type]
        return False

    monkeypatch.setattr(image_builds, "report_progress", cancelled)
    started_at = time.monotonic()
    assert not build(image, builder)
    assert time.monotonic() - started_at < 30
    assert BackgroundJob.objects.get().status == "CANCELLED"


def test_a_build_that_is_stopped_with_the_platform_says_so_and_ends_its_builder(tmp_path: Path) -> None:
    image = make_image("python", is_built_here=True)
    then = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    builder = builder_that_prints(tmp_path, "progress 0.2 on the way", then=then)

    def stop(number: int, frame: object) -> None:
        raise BuildStopped

    former = signal.signal(signal.SIGTERM, stop)
    try:
        threading.Thread(target=_signal_when, args=(tmp_path / "pid",), daemon=True).start()
        with pytest.raises(BuildStopped):
            build(image, builder)
    finally:
        signal.signal(signal.SIGTERM, former)
    job = BackgroundJob.objects.get()
    assert (job.status, job.result["code"]) == ("FAILED", "stopped")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def _signal_when(there: Path) -> None:
    while not (there.exists() and there.read_text()):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def test_what_people_can_work_with_first_is_made_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_image("another", is_built_here=True)
    seed_images()
    monkeypatch.setattr("backendai.ops.run.image_builds._is_there", lambda _reference: False)
    command, asked = tmp_path / "b", tmp_path / "asked"
    command.write_text(f"import sys; open({str(asked)!r}, 'a').write(sys.argv[2] + ' '); print('done')")
    assert build_missing(Builder(command, tmp_path / "log")) == 0
    assert asked.read_text().split() == ["python", "python-science", "another"]
