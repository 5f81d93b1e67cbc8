"""Building images in the background: what the builder prints becomes what waiting people read."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendai.activity.models import BackgroundJob
from backendai.compute.status import Status
from backendai.controller.loops import run_pass
from backendai.ops.image_builds import build
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session

pytestmark = pytest.mark.django_db


def builder_that_prints(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(f"print({line!r}, flush=True)" for line in lines))
    return path


def test_it_carries_the_progress_of_a_build_to_its_end(tmp_path: Path) -> None:
    image = make_image("python", is_built_here=True)
    builder = builder_that_prints(tmp_path / "b", "progress 0.41 python: installing (step 3 of 7)", "done all is well")
    assert build(image, builder, tmp_path / "log")
    job = BackgroundJob.objects.get()
    assert (job.subject, job.status, job.progress) == (image.reference, "DONE", 1.0)


def test_a_broken_build_names_its_fix_to_those_who_wait(cast: Cast, tmp_path: Path) -> None:
    make_agent()
    image = make_image("python", is_built_here=True)
    builder = builder_that_prints(
        tmp_path / "b", "progress 0.1 base: fetching", "failed disk-full No space is left. | Free 3 GB and try again."
    )
    assert not build(image, builder, tmp_path / "log")
    session = make_session(cast.alice)
    run_pass(session.created_at)
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.PENDING, "image-build-failed")
    assert "Free 3 GB" in session.status_message


def test_a_builder_that_dies_without_a_word_is_a_failed_build(tmp_path: Path) -> None:
    image = make_image("python", is_built_here=True)
    assert not build(image, builder_that_prints(tmp_path / "b", "progress 0.2 on the way"), tmp_path / "log")
    job = BackgroundJob.objects.get()
    assert job.status == "FAILED" and job.fix
