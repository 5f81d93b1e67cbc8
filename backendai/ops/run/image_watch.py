"""Watches the platform's own images: builds missing ones, retries failed builds, and builds on a superadmin's request.

Its state is in the database, so that a killed watcher continues.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from datetime import timedelta
from pathlib import Path

from django.db import close_old_connections
from django.utils import timezone

from backendai.agent.settings.native_mark import mark_native
from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.domain.activity.jobs import finish_job, newest_jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import WATCH_LEASE, asked_builds, is_due
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.native_sessions import end_native_sessions, runs_natively
from backendai.domain.cluster.services import release_lease, take_lease
from backendai.ops.run.image_builds import Builder, build, missing_images

logger = logging.getLogger(__name__)

_LOOK_SECONDS, _SEARCH_SECONDS, _RENEW_SECONDS = 2.0, 60.0, 20.0
_LEASE = timedelta(minutes=1)


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
