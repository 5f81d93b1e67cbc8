"""Builds the platform's own images, with progress for waiting sessions, and watches them: the watcher builds missing
ones, retries failed builds, and builds on a superadmin's request.

Its state is in the database, so that a killed watcher continues.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import docker
from django.db import close_old_connections
from django.utils import timezone
from docker.errors import DockerException, ImageNotFound

from backendai.agent.settings.marks import mark_native
from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.activity.jobs import finish_job, newest_jobs, report_progress, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import STOPPED, WATCH_LEASE, asked_builds, begin_build, build_failed, is_due
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import BUILD_JOB, built_here
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.native_sessions import end_native_sessions, runs_natively
from backendai.domain.cluster.services import release_lease, take_lease
from backendai.ops.run.engine import engine_address

logger = logging.getLogger(__name__)

_WRITE_EVERY = 2.0  # seconds between two writes of the progress
_STOP_SECONDS, _CHECK_SECONDS = 10.0, 30.0
_LOOK_SECONDS, _SEARCH_SECONDS, _RENEW_SECONDS = 2.0, 60.0, 20.0
_LEASE = timedelta(minutes=1)


class BuildStopped(BaseException):
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
    except BuildStopped:
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


class ImageWatch:
    """The loop of the watcher. ``agents``: the folder with the data of this machine's agents."""

    def __init__(self, builder: Builder, agents: Path) -> None:
        self._builder, self._agents = builder, agents
        self._owner = f"{socket.gethostname()[:24]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._renew_at = self._search_at = 0.0
        self._is_first_look, self._has_lease, self._was_native = True, False, False

    def run(self) -> None:
        """Check the images until ``Stopped`` is raised; logs errors of a check."""
        try:
            while True:
                try:
                    self.look()
                except Exception:
                    logger.exception("a look at the images failed")
                close_old_connections()
                time.sleep(_LOOK_SECONDS)
        finally:
            release_lease(WATCH_LEASE, self._owner, now=timezone.now())

    def look(self) -> None:
        """Run the requested builds; every minute also those of missing images that are due."""
        if not self._is_ours():
            return
        for job in asked_builds():
            self._build_asked(job)
        is_native = runs_natively()
        if time.monotonic() >= self._search_at or is_native != self._was_native:
            self._was_native = is_native
            self._search()

    def _is_ours(self) -> bool:
        """Return whether this is the only watcher. Renews the lease only at intervals."""
        if time.monotonic() >= self._renew_at:
            self._has_lease = take_lease(WATCH_LEASE, self._owner, now=timezone.now(), duration=_LEASE)
            self._renew_at = time.monotonic() + (_RENEW_SECONDS if self._has_lease else _LOOK_SECONDS)
        return self._has_lease

    def _search(self) -> None:
        missing = missing_images(self._builder)
        for image in missing or ():
            self._build_if_due(image)
        if missing:
            missing = missing_images(self._builder)
        if missing is not None:
            self._is_first_look = False
            self._mark_agents(missing)
        self._search_at = time.monotonic() + _SEARCH_SECONDS

    def _build_if_due(self, image: Image) -> None:
        job = newest_jobs(BUILD_JOB, [image.reference]).get(image.reference)
        if is_due(job, now=timezone.now(), is_first_look=self._is_first_look):
            build(image, self._builder)
            self._renew_at = 0.0

    def _build_asked(self, job: BackgroundJob) -> None:
        image = Image.objects.kept().filter(reference=job.subject, is_built_here=True).first()
        if image is None:
            finish_job(
                job.pk, message=Message("The image was removed from the catalogue."), now=timezone.now(), failed=True
            )
            return
        try:
            build(image, self._builder, job)
        except Conflict:
            logger.info("the build of %s is over already", job.subject)
        self._renew_at = self._search_at = 0.0

    def _mark_agents(self, missing: list[Image]) -> None:
        """Tell the agents of this machine whether to run native processes.

        They do while an image is missing, and a superadmin allows it.
        """
        wanted = runs_natively()
        if wanted and not missing:
            end_native_sessions(None)
            wanted = False
        for folder in self._agents.glob("*/"):
            mark_native(folder, wanted=wanted and self._builder.may_run_natively)
