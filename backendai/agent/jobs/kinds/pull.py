"""Pulls an image ahead of time. Only the engine gets the registry's account."""

from __future__ import annotations

from backendai.agent.backends.abilities import Imaging
from backendai.agent.jobs.handlers import JobHandler, JobProgress, Outcome
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.pulls import PULL, PullWork


class Handler(JobHandler):
    """Pulls images in a lane of its own, so that waiting sessions are not delayed."""

    _backend: Imaging

    kind, work = PULL, PullWork
    needs, begins = Capability.IMAGES, "It begins."
    at_once = 2

    def run(self, work: PullWork, progress: JobProgress) -> Outcome:
        """Pull the image unless exactly this digest is here."""
        if work.digest and self._backend.has_image(work.exact_image):
            return Outcome("It was there already.")
        self._backend.pull(
            work.exact_image, timeout=progress.seconds_left(), progress=progress.heed, access=work.access
        )
        self._on_images_changed()
        return Outcome("It has come.")
