"""Builds one of the platform's own images, and reports progress for waiting sessions."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from django.utils import timezone
from docker.errors import DockerException, ImageNotFound

from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.activity.jobs import finish_job, report_progress, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import STOPPED, begin_build, build_failed
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import built_here
from backendai.domain.cluster.models import ResourceGroup
from backendai.ops.run.engine import engine_address

_WRITE_EVERY = 2.0  # seconds between two writes of the progress
_STOP_SECONDS, _CHECK_SECONDS = 10.0, 30.0


class Stopped(BaseException):
    """The builder was told to stop."""


@dataclass(frozen=True, slots=True)
class Builder:
    """The command that builds, and the file for its output.

    ``may_run_natively``: the agents of this machine may run native processes while a build cannot succeed.
    ``environments``: the folder for Python environments of native sessions, which it builds instead of images.
    """

    command: Path
    log: Path
    may_run_natively: bool = False
    environments: Path | None = None

    def words(self, *more: str) -> list[str]:
        """Return the command with these further arguments."""
        told = ["--into", str(self.environments)] if self.environments else []
        return [sys.executable, str(self.command), *told, *more]


def build_missing(builder: Builder) -> int:
    """Build every missing image of this machine once; return how many builds failed."""
    return sum(not build(image, builder) for image in missing_images(builder) or ())


def missing_images(builder: Builder) -> list[Image] | None:
    """Return the enabled images of the platform that the engine lacks; None while no engine answers.

    With ``environments``: the images whose native environment is missing or outdated.
    """
    images = [image for image in built_here() if image.is_enabled]
    if builder.environments:
        return [image for image in images if image.process_reference and not _is_current(builder)]
    try:
        return [image for image in images if not _is_there(image.reference)]
    except DockerException:
        return None


def build(image: Image, builder: Builder, asked: BackgroundJob | None = None) -> bool:
    """Build one image, for the job ``asked`` or a new one; return whether it succeeded.

    Raises Conflict if the job is over.
    """
    job = begin_build(image, asked, now=timezone.now())
    try:
        return _follow(job, image, builder)
    except Stopped:
        _fail(job, builder, STOPPED, "The build was stopped with the platform.", "It begins again at the next start.")
        raise
    finally:
        _wake()


def _follow(job: BackgroundJob, image: Image, builder: Builder) -> bool:
    written = 0.0
    with _running(builder, image.name) as process:
        for line in process.stdout or ():
            kind, _, rest = line.strip().partition(" ")
            if kind == "progress" and time.monotonic() - written > _WRITE_EVERY:
                share, _, sentence = rest.partition(" ")
                if not report_progress(job.pk, float(share), sentence, now=timezone.now()):
                    process.terminate()
                    stop_job(job.pk, message=Message("Cancelled."), now=timezone.now())
                    return False
                written = time.monotonic()
                _wake()
            elif kind == "failed":
                code, _, told = rest.partition(" ")
                sentence, _, fix = told.partition(" | ")
                _fail(job, builder, code, sentence, fix)
                return False
            elif kind == "done":
                made = Message("The Python environment of native sessions is ready.")
                built = made if builder.environments else Message("Image {image} is built.", image=image.name)
                finish_job(job.pk, message=built, now=timezone.now())
                return True
    fix = Message("Read {log}, then retry the build.", log=builder.log)
    _fail(job, builder, "no-answer", Message("The build ended without giving a reason."), fix)
    return False


def _fail(job: BackgroundJob, builder: Builder, code: str, sentence: str, fix: str) -> None:
    build_failed(job, code, sentence, fix, may_run_natively=builder.may_run_natively, now=timezone.now())


def _is_current(builder: Builder) -> bool:
    return subprocess.run(builder.words("--check"), timeout=_CHECK_SECONDS, check=False).returncode == 0


def _is_there(reference: str) -> bool:
    """Return whether the engine has the image. Raises DockerException if no engine answers."""
    client = docker.APIClient(base_url=engine_address(), timeout=10)
    try:
        client.inspect_image(reference)
    except ImageNotFound:
        return False
    finally:
        client.close()
    return True


@contextmanager
def _running(builder: Builder, name: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the running build command. An exception stops it with all its child processes."""
    only = () if builder.environments else ("--only", name)
    command = builder.words(*only, "--progress", "--log", str(builder.log))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        yield process
    except BaseException:
        process.terminate()
        raise
    finally:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _wake() -> None:
    """Start scheduler passes, so that waiting sessions show the progress."""
    for group_id in ResourceGroup.objects.filter(is_active=True).values_list("pk", flat=True):
        hint("controller.schedule_group", group_id, queue=CONTROL_QUEUE)
